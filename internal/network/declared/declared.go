// Package declared is what is said of a pod's interfaces outside of the pod, by its
// name: by PodNetworks and by labelled ConfigMaps. It reads them, settles field by
// field whose word counts, and keeps from where each has come. It is pure, and knows
// neither networks nor who carries a setting out.
package declared

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// Level is how strong a declaration is; a lower one counts before a higher one.
type Level int

// The levels (spec/sriov.md, Precedence).
const (
	OfPod         Level = iota // a PodNetwork of the pod's name
	OfStatefulSet              // a PodNetwork of its StatefulSet
	OfNamespace                // a ConfigMap of the pod's namespace
	OfAll                      // a ConfigMap of the agent's namespace
)

// Declaration is what one object says of one pod.
type Declaration struct {
	Level      Level
	Source     string // "PodNetwork bank/mysql-0", "ConfigMap bank/db-net, key mysql-1"
	Interfaces []Interface
	// Beyond: the pod's StatefulSet is scaled down below it, or gone.
	Beyond bool
}

// Interface is what is declared of one interface of one pod: a range's addresses are
// the pod's own. Name is "" where the object does not say which interface it means:
// the one of the pod's only further network, else the default one.
type Interface struct {
	v1alpha1.PodInterface

	Gateways []string // at most one of each family
}

// Outlasts tells that its addresses are not kept for just as long as they are declared.
func (i *Interface) Outlasts() bool {
	return i.Retain != "" && i.Retain != v1alpha1.RetainWhileDeclared
}

// Settings are what counts of one interface.
type Settings struct {
	Interface

	From map[string]string // of each field that is declared, the object that counts
	Lost []Lost            // what was declared and does not count
}

// Lost is a value that another object's came before.
type Lost struct{ Field, Value, Source string }

// Sources are the objects that have a word in it, in the order of fields.
func (s *Settings) Sources() (all []string) {
	for _, f := range fields {
		if from, ok := s.From[f.name]; ok && !slices.Contains(all, from) {
			all = append(all, from)
		}
	}
	return all
}

// Source are these as text.
func (s *Settings) Source() string { return strings.Join(s.Sources(), ", ") }

// By are the settings that come from one source.
func (s *Settings) By(source string) *Settings {
	out := &Settings{From: map[string]string{}}
	out.Name = s.Name
	for _, f := range fields {
		if s.From[f.name] == source {
			f.copy(&out.Interface, &s.Interface)
			out.From[f.name] = source
		}
	}
	return out
}

// Object is the object of a source: "PodNetwork bank/mysql-0", "ConfigMap bank/db-net, key
// mysql-1".
func Object(source string) (kind, namespace, name string) {
	source, _, _ = strings.Cut(source, ",")
	kind, source, _ = strings.Cut(source, " ")
	namespace, name, _ = strings.Cut(source, "/")
	return kind, namespace, name
}

// Contradicts is the error where something of the pod asks for another value of a field.
func (s *Settings) Contradicts(field, value, where, asked string) error {
	return core.Blame(core.Reasoned(core.CodeConflict, core.ReasonAnnotationConflict, "%s declares %s %s of interface %s, and %s asks for %s",
		s.From[field], field, value, s.Name, where, asked), s.From[field])
}

// field is one that is settled for itself.
type field struct {
	name string
	text func(*Interface) string // "" where it is not declared
	copy func(to, from *Interface)
}

// Names of fields, as they stand in a PodNetwork.
const (
	Network   = "network"
	IPs       = "ips"
	MAC       = "mac"
	Gateway   = "gateway"
	VLAN      = "vlan"
	MinMbps   = "bandwidth.minMbps"
	MaxMbps   = "bandwidth.maxMbps"
	SpoofChk  = "sriov.spoofchk"
	Trust     = "sriov.trust"
	LinkState = "sriov.linkState"
	PF        = "sriov.pf"
	Retain    = "retain"
)

var fields = []field{
	{Network, func(i *Interface) string { return i.Network }, func(to, from *Interface) { to.Network = from.Network }},
	{IPs, func(i *Interface) string { return list(i.IPs) }, func(to, from *Interface) { to.IPs = from.IPs }},
	{MAC, func(i *Interface) string { return i.MAC }, func(to, from *Interface) { to.MAC = from.MAC }},
	{Gateway, func(i *Interface) string { return list(i.Gateways) }, func(to, from *Interface) { to.Gateways = from.Gateways }},
	{VLAN, vlanText, func(to, from *Interface) { to.VLAN = from.VLAN }},
	{MinMbps, rate(func(b *v1alpha1.Bandwidth) *int { return b.MinMbps }), func(to, from *Interface) { to.rates().MinMbps = from.Bandwidth.MinMbps }},
	{MaxMbps, rate(func(b *v1alpha1.Bandwidth) *int { return b.MaxMbps }), func(to, from *Interface) { to.rates().MaxMbps = from.Bandwidth.MaxMbps }},
	{SpoofChk, flag(func(s *v1alpha1.SRIOV) *bool { return s.SpoofChk }), func(to, from *Interface) { to.vf().SpoofChk = from.SRIOV.SpoofChk }},
	{Trust, flag(func(s *v1alpha1.SRIOV) *bool { return s.Trust }), func(to, from *Interface) { to.vf().Trust = from.SRIOV.Trust }},
	{LinkState, ofVF(func(s *v1alpha1.SRIOV) string { return s.LinkState }), func(to, from *Interface) { to.vf().LinkState = from.SRIOV.LinkState }},
	{PF, ofVF(func(s *v1alpha1.SRIOV) string { return list(s.PF) }), func(to, from *Interface) { to.vf().PF = from.SRIOV.PF }},
	{Retain, func(i *Interface) string { return i.Retain }, func(to, from *Interface) { to.Retain = from.Retain }},
}

// Names are those of all fields, in order.
func Names() (out []string) {
	for _, f := range fields {
		out = append(out, f.name)
	}
	return out
}

func (i *Interface) rates() *v1alpha1.Bandwidth {
	if i.Bandwidth == nil {
		i.Bandwidth = &v1alpha1.Bandwidth{}
	}
	return i.Bandwidth
}

func (i *Interface) vf() *v1alpha1.SRIOV {
	if i.SRIOV == nil {
		i.SRIOV = &v1alpha1.SRIOV{}
	}
	return i.SRIOV
}

func list(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprint(values)
}

func vlanText(i *Interface) string {
	if i.VLAN == nil {
		return ""
	}
	text := strconv.Itoa(i.VLAN.ID)
	if i.VLAN.QoS != 0 {
		text += " qos " + strconv.Itoa(i.VLAN.QoS)
	}
	if i.VLAN.Proto != "" {
		text += " proto " + i.VLAN.Proto
	}
	return text
}

func rate(of func(*v1alpha1.Bandwidth) *int) func(*Interface) string {
	return func(i *Interface) string {
		if i.Bandwidth == nil || of(i.Bandwidth) == nil {
			return ""
		}
		return strconv.Itoa(*of(i.Bandwidth))
	}
}

func ofVF(text func(*v1alpha1.SRIOV) string) func(*Interface) string {
	return func(i *Interface) string {
		if i.SRIOV == nil {
			return ""
		}
		return text(i.SRIOV)
	}
}

func flag(of func(*v1alpha1.SRIOV) *bool) func(*Interface) string {
	return ofVF(func(s *v1alpha1.SRIOV) string {
		if of(s) == nil {
			return ""
		}
		return strconv.FormatBool(*of(s))
	})
}

// Fields are the values that are declared, by field.
func (i *Interface) Fields() map[string]string {
	out := map[string]string{}
	for _, f := range fields {
		if text := f.text(i); text != "" {
			out[f.name] = text
		}
	}
	return out
}

// Place gives the interfaces that are declared without a name the one that they mean:
// that of the pod's only further network, else of its default one. With several
// further networks it is an AmbiguousDeclaration.
func Place(all []Declaration, first string, further []string) error {
	for _, d := range all {
		for n := range d.Interfaces {
			i := &d.Interfaces[n]
			switch {
			case i.Name != "":
			case len(further) == 0:
				i.Name = first
			case len(further) == 1:
				i.Name = further[0]
			default:
				return core.Blame(core.Reasoned(core.CodeConflict, core.ReasonAmbiguousDeclaration,
					"%s names no interface, and the pod has several further networks, on %v", d.Source, further), d.Source)
			}
		}
	}
	return nil
}

// Settle makes one word of all declarations of a pod, by interface, in the order in
// which interfaces are named. Two objects of one level may not speak of the same
// interface: that is an AmbiguousDeclaration. All interfaces have names.
func Settle(all []Declaration) ([]Settings, error) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Declaration) int { return cmp.Compare(a.Level, b.Level) })
	var out []Settings
	by := map[string]Declaration{} // the last one that spoke of an interface
	for _, d := range all {
		for n := range d.Interfaces {
			i := &d.Interfaces[n]
			if last, ok := by[i.Name]; ok && last.Level == d.Level {
				return nil, core.Blame(core.Reasoned(core.CodeConflict, core.ReasonAmbiguousDeclaration,
					"%s and %s both declare interface %s of the pod", last.Source, d.Source, i.Name), last.Source, d.Source)
			}
			by[i.Name] = d
			at := slices.IndexFunc(out, func(s Settings) bool { return s.Name == i.Name })
			if at < 0 {
				at = len(out)
				out = append(out, Settings{From: map[string]string{}})
				out[at].Name = i.Name
			}
			out[at].take(i, d.Source)
		}
	}
	return out, nil
}

// take adds what a weaker object declares.
func (s *Settings) take(i *Interface, source string) {
	for _, f := range fields {
		text := f.text(i)
		switch _, has := s.From[f.name]; {
		case text == "":
		case has:
			s.Lost = append(s.Lost, Lost{f.name, text, source})
		default:
			f.copy(&s.Interface, i)
			s.From[f.name] = source
		}
	}
}
