package catalog

import (
	"cmp"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Settings is what resolve.Explain said of a pod.
func Settings(pod core.Pod, known bool, x resolve.Explained, err error) agent.PodSettings {
	out := agent.PodSettings{Namespace: pod.Namespace, Name: pod.Name, Known: known, Sources: []string{}, Interfaces: []agent.InterfaceSettings{}}
	for _, d := range x.Declarations {
		out.Sources = append(out.Sources, d.Source)
	}
	for _, i := range x.Interfaces {
		out.Interfaces = append(out.Interfaces, agent.InterfaceSettings{Name: i.Name, Network: i.Network, Fields: fieldsOf(&i.Settings)})
	}
	if err != nil {
		out.Refusal = &agent.Refusal{Code: core.CodeOf(err), Reason: core.ReasonOf(err), Message: err.Error()}
	}
	return out
}

func fieldsOf(s *declared.Settings) []agent.FieldSetting {
	out := []agent.FieldSetting{}
	for _, name := range declared.Names() {
		source, is := s.From[name]
		if !is {
			continue
		}
		f := agent.FieldSetting{Field: name, Value: s.Fields()[name], Source: source}
		for _, l := range s.Lost {
			if l.Field == name {
				f.Lost = append(f.Lost, agent.LostValue{Value: l.Value, Source: l.Source})
			}
		}
		out = append(out, f)
	}
	return out
}

// PodNetwork is what an object declares, without its pods.
func PodNetwork(o *v1alpha1.PodNetwork) agent.PodNetwork {
	out := agent.PodNetwork{Namespace: o.Namespace, Name: o.Name, StatefulSet: o.Spec.StatefulSet, Interfaces: []agent.PodNetworkInterface{}, Pods: []agent.PodNetworkPod{}}
	for _, i := range o.Spec.Interfaces {
		said := declared.Interface{PodInterface: i}
		fields := said.Fields()
		for name, value := range map[string]string{"ipRange": i.IPRange, "macBase": i.MACBase} {
			if value != "" {
				fields[name] = value
			}
		}
		out.Interfaces = append(out.Interfaces, agent.PodNetworkInterface{
			Name: i.Name, Network: i.Network, Address: cmp.Or(strings.Join(i.IPs, ","), i.IPRange), Fields: fields,
		})
	}
	return out
}
