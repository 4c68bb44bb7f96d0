package declared

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Check is what the API server would refuse of a PodNetwork. Errors are *core.Error
// with code 102 and, where the specification has a word for it, a reason.
func Check(p *v1alpha1.PodNetwork) error {
	if len(p.Spec.Interfaces) == 0 {
		return core.Errorf(core.CodeValue, "spec.interfaces is missing")
	}
	seen := map[string]bool{}
	for n := range p.Spec.Interfaces {
		i := Interface{PodInterface: p.Spec.Interfaces[n]}
		where := "spec.interfaces[" + i.Name + "]"
		if i.Name == "" {
			return core.Errorf(core.CodeValue, "spec.interfaces: name is missing")
		}
		if seen[i.Name] {
			return core.Errorf(core.CodeValue, "%s stands twice", where)
		}
		seen[i.Name] = true
		if err := ofSet(&i, p.Spec.StatefulSet != "", where); err != nil {
			return err
		}
		if err := check(&i, where); err != nil {
			return err
		}
	}
	return nil
}

// ofSet holds ranges to StatefulSets, and single addresses to pods.
func ofSet(i *Interface, set bool, where string) error {
	switch {
	case !set && (i.IPRange != "" || i.MACBase != ""):
		return core.Errorf(core.CodeValue, "%s: ipRange and macBase are for the pods of a statefulSet", where)
	case set && (len(i.IPs) > 0 || i.MAC != ""):
		return core.Errorf(core.CodeValue, "%s: ips and mac are of one pod: those of a statefulSet have an ipRange and a macBase", where)
	case !set && i.Retain == v1alpha1.RetainUntilScaleDown:
		return core.Errorf(core.CodeValue, "%s: retain %s is for the pods of a statefulSet", where, i.Retain)
	}
	return nil
}

// check is about one interface; where is what the error begins with.
func check(i *Interface, where string) error {
	for _, part := range []func(*Interface, string) error{checkName, checkAddrs, checkMACs, checkVLAN, checkRates, checkWords} {
		if err := part(i, where); err != nil {
			return err
		}
	}
	return nil
}

func checkName(i *Interface, where string) error {
	if i.Name != "" {
		if why := annotation.IfNameFault(i.Name); why != "" {
			return core.Errorf(core.CodeValue, "%s: name %q %s", where, annotation.Clip(i.Name), why)
		}
	}
	ns, name, both := strings.Cut(i.Network, "/")
	if !both {
		ns, name = "default", i.Network
	}
	if i.Network != "" && (!annotation.IsNamespace(ns) || !annotation.IsName(name)) {
		return core.Errorf(core.CodeValue, "%s: network %q is neither NAMESPACE/NAME of a NetworkAttachmentDefinition nor a Subnet's name", where, annotation.Clip(i.Network))
	}
	return nil
}

func checkAddrs(i *Interface, where string) error {
	for _, list := range []struct {
		name string
		all  []string
	}{{"ips", i.IPs}, {"gateway", i.Gateways}} {
		var addrs []netip.Addr
		for _, text := range list.all {
			a, err := parseAddr(text)
			if err != nil {
				return core.Errorf(core.CodeValue, "%s: %s %q is neither an address nor one with its prefix length", where, list.name, annotation.Clip(text))
			}
			addrs = append(addrs, a)
		}
		if annotation.OnePerFamily(addrs) != nil {
			return core.Errorf(core.CodeValue, "%s: %s %v are at most one of each family", where, list.name, list.all)
		}
	}
	if i.IPRange != "" {
		if _, _, err := parseRange(i.IPRange); err != nil {
			return core.Errorf(core.CodeValue, "%s: %v", where, err)
		}
	}
	return nil
}

func parseAddr(text string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), nil
	}
	return annotation.ParseAddr(text)
}

func checkMACs(i *Interface, where string) error {
	for _, one := range []struct{ name, text string }{{"mac", i.MAC}, {"macBase", i.MACBase}} {
		if one.text == "" {
			continue
		}
		if _, err := annotation.ParseMAC(one.text); err != nil {
			return core.Reasoned(core.CodeValue, core.ReasonInvalidMAC, "%s: %s %q %w", where, one.name, annotation.Clip(one.text), err)
		}
	}
	return nil
}

func checkVLAN(i *Interface, where string) error {
	if v := i.VLAN; v != nil {
		if why := core.TagFault(v.ID, v.QoS, annotation.Clip(v.Proto)); why != "" {
			return core.Reasoned(core.CodeValue, core.ReasonInvalidVLAN, "%s: %s", where, why)
		}
	}
	return nil
}

func checkRates(i *Interface, where string) error {
	if b := i.Bandwidth; b != nil {
		if why := core.RateFault(value(b.MinMbps), value(b.MaxMbps)); why != "" {
			return core.Reasoned(core.CodeValue, core.ReasonRateInvalid, "%s: bandwidth: %s", where, why)
		}
	}
	return nil
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func checkWords(i *Interface, where string) error {
	if !slices.Contains([]string{"", v1alpha1.RetainWhileDeclared, v1alpha1.RetainUntilScaleDown, v1alpha1.RetainForever}, i.Retain) {
		return core.Errorf(core.CodeValue, "%s: retain %q is none of WhileDeclared, UntilScaleDown, Forever", where, annotation.Clip(i.Retain))
	}
	if i.Outlasts() && len(i.IPs) == 0 && i.IPRange == "" && i.MAC == "" && i.MACBase == "" {
		return core.Errorf(core.CodeValue, "%s: retain %s: no address or MAC is declared that could be retained", where, i.Retain)
	}
	if i.SRIOV != nil && !slices.Contains([]string{"", "auto", "enable", "disable"}, i.SRIOV.LinkState) {
		return core.Errorf(core.CodeValue, "%s: sriov.linkState %q is none of auto, enable, disable", where, annotation.Clip(i.SRIOV.LinkState))
	}
	return nil
}
