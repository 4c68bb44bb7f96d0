package deviceplugin

import (
	"fmt"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
)

// Show tells of all virtual functions, also where there is no policy.
func (m *Manager) Show() agent.VFList {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := agent.VFList{Items: []agent.VF{}}
	m.load()
	s, err := m.observe(m.seen.plan.Policies)
	if err != nil {
		out.Failed = append(out.Failed, err.Error())
		return out
	}
	for _, card := range s.cards {
		for _, f := range card.Functions {
			v := agent.VF{PF: f.PF, Index: f.Index, PCI: f.PCI, Driver: f.Driver, Netdev: f.Netdev, Unhealthy: s.sick[f.PCI]}
			if f.NUMA >= 0 {
				v.NUMA = &f.NUMA
			}
			if p := s.plan.Owner(f.PCI); p != nil {
				v.Resource, v.Policy = p.Spec.Resource, p.Name
			}
			m.who(&v, s)
			if v.Attributes, err = attributes(f); err != nil {
				out.Failed = append(out.Failed, fmt.Sprintf("attributes of virtual function %d of %s: %v", f.Index, f.PF, err))
			}
			out.Items = append(out.Items, v)
		}
	}
	return out
}

// who says whose a function is.
func (m *Manager) who(v *agent.VF, s state) {
	by, is := s.given[v.PCI]
	if !is {
		return
	}
	pod := m.cfg.Pod(by.key)
	v.AttachmentRef = agent.AttachmentRef{Namespace: pod.Namespace, Pod: pod.Name, Container: by.key.Container, IfName: by.key.IfName}
	if g := m.book[by.key.String()]; g.PCI == v.PCI {
		v.Place = g.ID
	}
}

func attributes(f vfpolicy.Function) (*agent.VFAttributes, error) {
	a, err := sriov.Read(sriov.VF{PCI: f.PCI, PF: f.PF, Index: f.Index})
	if err != nil {
		return nil, err
	}
	out := &agent.VFAttributes{
		VLAN: a.VLAN, QoS: a.QoS, MinMbps: a.MinMbps, MaxMbps: a.MaxMbps, SpoofChk: a.SpoofChk, Trust: a.Trust,
		LinkState: map[int]string{sriov.LinkEnable: "enable", sriov.LinkDisable: "disable"}[a.LinkState],
	}
	if out.LinkState == "" {
		out.LinkState = "auto"
	}
	if len(a.MAC) > 0 {
		out.MAC = a.MAC.String()
	}
	if a.Proto == sriov.Proto8021AD {
		out.Proto = "802.1ad"
	}
	return out, nil
}
