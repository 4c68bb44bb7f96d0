// Package vfpolicy decides which virtual functions of a node's cards are which resource of
// kubelet's: from NodeVFPolicies, or a file of the usual device plugin, and from what the
// cards have. It is pure: it knows no machine, no kubelet and no pod.
package vfpolicy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// Policy is one NodeVFPolicy, or one resource of a resourceList.
type Policy struct {
	Name       string
	Generation int64     // 0: nobody counts
	Created    time.Time // of policies of one priority the older one counts more
	Spec       v1alpha1.NodeVFPolicySpec
}

// Slot tells that kubelet gives places, and the function is chosen later.
func (p Policy) Slot() bool {
	return cmp.Or(p.Spec.IDMode, map[bool]string{true: v1alpha1.IDModePCI, false: v1alpha1.IDModeSlot}[p.VFIO()]) == v1alpha1.IDModeSlot
}

// VFIO tells that the functions are for programs that drive them themselves.
func (p Policy) VFIO() bool { return p.Spec.Driver == v1alpha1.DriverVFIO }

func (p Policy) priority() int {
	if p.Spec.Priority == nil {
		return v1alpha1.PriorityDefault
	}
	return *p.Spec.Priority
}

// Means tells whether a node with these labels is one of the policy's.
func (p Policy) Means(labels map[string]string) bool {
	for k, v := range p.Spec.NodeSelector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// order puts the policy first that counts most.
func order(a, b Policy) int {
	return cmp.Or(cmp.Compare(a.priority(), b.priority()), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

var (
	resourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,55}[A-Za-z0-9])?$`)
	rangedName   = regexp.MustCompile(`^[^/:#%\s]{1,15}(#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`)
	pciAddress   = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]$`)
	rangedPCI    = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7](#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`)
	hex4         = regexp.MustCompile(`^[0-9a-fA-F]{4}$`)
	word         = regexp.MustCompile(`^.{1,63}$`)
	linkType     = regexp.MustCompile(`^(ether|infiniband)$`)
)

// Check refuses what the API server would refuse (the CRD's rules). Errors have code 102.
func Check(s *v1alpha1.NodeVFPolicySpec) error {
	bad := func(field, format string, args ...any) error {
		return core.Errorf(core.CodeValue, "spec."+field+": "+format, args...)
	}
	name, _, _ := strings.Cut(s.Resource, "/")
	if !resourceName.MatchString(s.Resource) || strings.HasSuffix(name, "kubernetes.io") {
		return bad("resource", "%q is no name of the form vendor.example/db", s.Resource)
	}
	for _, check := range []func(*v1alpha1.NodeVFPolicySpec, refuse) error{checkMeant, checkMode, checkNumbers, checkLists} {
		if err := check(s, bad); err != nil {
			return err
		}
	}
	return nil
}

// refuse makes the error of a field of the spec.
type refuse func(field, format string, args ...any) error

// checkMeant is about which functions are meant, and what is said of their PFs.
func checkMeant(s *v1alpha1.NodeVFPolicySpec, bad refuse) error {
	onPF := len(s.PF) > 0
	switch {
	case !onPF && len(s.Selectors) == 0:
		return core.Errorf(core.CodeValue, "spec: pf or selectors must say which functions are meant")
	case s.NumVFs != nil && !onPF:
		return bad("numVFs", "it is a number for each physical function in pf")
	case s.MTU != 0 && !onPF:
		return bad("mtu", "it is that of the physical functions in pf")
	}
	return nil
}

// checkMode is about what cannot be had with every way to give functions.
func checkMode(s *v1alpha1.NodeVFPolicySpec, bad refuse) error {
	switch {
	case s.Driver == v1alpha1.DriverVFIO && s.IDMode == v1alpha1.IDModeSlot:
		return bad("idMode", "functions of vfio-pci are given by their addresses: pci")
	case s.IDMode != v1alpha1.IDModePCI && Policy{Spec: *s}.RDMA():
		return bad("idMode", "a function's RDMA device is given with its address: pci")
	case s.MinRateBudgetPercent != 0 && !(Policy{Spec: *s}).Slot():
		return bad("minRateBudgetPercent", "it is of functions that the agent chooses: idMode slot")
	}
	return nil
}

func checkNumbers(s *v1alpha1.NodeVFPolicySpec, bad refuse) error {
	for _, n := range []struct {
		field      string
		is, lo, hi int
		said       bool
	}{
		{field: "numVFs", is: deref(s.NumVFs), hi: 65535, said: s.NumVFs != nil},
		{field: "mtu", is: s.MTU, lo: 68, hi: 65535, said: s.MTU != 0},
		{field: "priority", is: deref(s.Priority), hi: 99, said: s.Priority != nil},
		{field: "minRateBudgetPercent", is: s.MinRateBudgetPercent, lo: 1, hi: 100, said: s.MinRateBudgetPercent != 0},
	} {
		if n.said && (n.is < n.lo || n.is > n.hi) {
			return bad(n.field, "%d is not from %d to %d", n.is, n.lo, n.hi)
		}
	}
	for field, v := range map[string][]string{"idMode": {s.IDMode, v1alpha1.IDModeSlot, v1alpha1.IDModePCI}, "driver": {s.Driver, v1alpha1.DriverKernel, v1alpha1.DriverVFIO}} {
		if v[0] != "" && !slices.Contains(v[1:], v[0]) {
			return bad(field, "%q is none of %s", v[0], strings.Join(v[1:], ", "))
		}
	}
	if b := s.Baseline; b != nil {
		if why := core.TagFault(b.VLAN, 0, ""); why != "" {
			return bad("baseline.vlan", "%s", why)
		}
		if why := core.RateFault(0, b.MaxMbps); why != "" {
			return bad("baseline.maxMbps", "%s", why)
		}
	}
	return nil
}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func checkLists(s *v1alpha1.NodeVFPolicySpec, bad refuse) error {
	type list struct {
		field string
		is    []string
		like  *regexp.Regexp
	}
	all := []list{{"pf", s.PF, rangedName}}
	for i, sel := range s.Selectors {
		at := fmt.Sprintf("selectors[%d].", i)
		all = append(all, list{at + "vendors", sel.Vendors, hex4}, list{at + "devices", sel.Devices, hex4}, list{at + "drivers", sel.Drivers, word},
			list{at + "pciAddresses", sel.PCIAddresses, pciAddress}, list{at + "pfNames", sel.PFNames, rangedName},
			list{at + "rootDevices", sel.RootDevices, rangedPCI}, list{at + "linkTypes", sel.LinkTypes, linkType})
	}
	for _, l := range all {
		for i, text := range l.is {
			if !l.like.MatchString(text) {
				return bad(fmt.Sprintf("%s[%d]", l.field, i), "%q is not what is meant there", text)
			}
		}
	}
	return nil
}

// resourceList is the file of the usual device plugin.
type resourceList struct {
	ResourceList []struct {
		ResourceName    string          `json:"resourceName"`
		ResourcePrefix  string          `json:"resourcePrefix"`
		DeviceType      string          `json:"deviceType"`
		ExcludeTopology bool            `json:"excludeTopology"`
		Selectors       json.RawMessage `json:"selectors"` // one, or a list
	} `json:"resourceList"`
}

// usualPrefix is that of resources of which the file says none.
const usualPrefix = "intel.com"

// ReadList reads a resourceList. Its functions are somebody else's to make, and kubelet
// gives them by address. What it asks for and nobody carries out is an error, code 7.
func ReadList(text []byte) ([]Policy, error) {
	var in resourceList
	if err := strict(text, &in); err != nil {
		return nil, core.Errorf(core.CodeConfig, "resourceList: %w", err)
	}
	var out []Policy
	for i, r := range in.ResourceList {
		at := fmt.Sprintf("resourceList[%d]", i)
		if r.DeviceType != "" && r.DeviceType != "netDevice" {
			return nil, core.Errorf(core.CodeConfig, "%s.deviceType: %q is not carried out here, only netDevice", at, r.DeviceType)
		}
		p := Policy{Name: at, Spec: v1alpha1.NodeVFPolicySpec{
			Resource: cmp.Or(r.ResourcePrefix, usualPrefix) + "/" + r.ResourceName, IDMode: v1alpha1.IDModePCI,
			ExternallyManaged: true, ExcludeTopology: r.ExcludeTopology,
		}}
		var err error
		if p.Spec.Selectors, p.Spec.NeedVhostNet, err = readSelectors(r.Selectors); err == nil {
			err = Check(&p.Spec)
		}
		if err != nil {
			return nil, core.Errorf(core.CodeConfig, "%s: %w", at, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// readSelectors reads both forms; needVhostNet stands among them there.
func readSelectors(raw json.RawMessage) (out []v1alpha1.VFSelector, vhost bool, err error) {
	type selector struct {
		v1alpha1.VFSelector `json:",inline"`
		NeedVhostNet        bool `json:"needVhostNet"`
	}
	var list []selector
	if text := strings.TrimSpace(string(raw)); !strings.HasPrefix(text, "[") {
		list = make([]selector, 1)
		err = strict(raw, &list[0])
	} else {
		err = strict(raw, &list)
	}
	if err != nil {
		return nil, false, fmt.Errorf("selectors: %w", err)
	}
	for _, s := range list {
		out, vhost = append(out, s.VFSelector), vhost || s.NeedVhostNet
	}
	return out, vhost, nil
}

func strict(text []byte, to any) error {
	if len(text) == 0 {
		return errors.New("it is missing")
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// ranged is a name with the numbers of functions that are meant; none: all.
type ranged struct {
	name   string
	ranges [][2]int
}

// parseRanged reads NAME#0-3,5, which was checked.
func parseRanged(text string) ranged {
	name, rest, _ := strings.Cut(text, "#")
	out := ranged{name: name}
	for _, part := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		first, last, is := strings.Cut(part, "-")
		if !is {
			last = first
		}
		lo, _ := strconv.Atoi(first)
		hi, _ := strconv.Atoi(last)
		out.ranges = append(out.ranges, [2]int{lo, hi})
	}
	return out
}

func (r ranged) means(name string, index int) bool {
	in := func(bounds [2]int) bool { return bounds[0] <= index && index <= bounds[1] }
	return r.name == name && (len(r.ranges) == 0 || slices.ContainsFunc(r.ranges, in))
}

// PFs are the physical functions that a policy names.
func (p Policy) PFs() []string {
	names := map[string]bool{}
	for _, text := range p.Spec.PF {
		names[parseRanged(text).name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
