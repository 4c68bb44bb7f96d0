package server

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/record"
)

// held is an address that is held somewhere for somebody.
type held struct {
	leak  agent.Leak // without reason and command
	owner core.Key
	// still tells that it is held for the same one.
	still func() bool
}

// leaks are the addresses that are held for nobody who lives, and failed what
// could not be looked at. Each is judged in its container's turn, so that no
// operation is half done; a busy container's addresses are that operation's.
func (s *Server) leaks() (leaks []agent.Leak, failed []string) {
	leaks = []agent.Leak{}
	all := s.pooled()
	for _, d := range driver.Each[driver.Lister](s.Engine.Drivers) {
		kept, errs := d.Kept(s.calls())
		for _, k := range kept {
			all = append(all, held{leak: agent.Leak{Address: k.Address, Network: k.Network, File: k.File}, owner: k.Owner, still: k.Still})
		}
		for _, err := range errs {
			failed = append(failed, err.Error())
		}
	}
	for _, h := range all {
		unlock, ok := s.Engine.TryLock(h.owner.Container)
		if !ok {
			continue
		}
		is, err := s.judge(&h)
		unlock()
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s of %s: %v", h.leak.Address, h.owner, err))
		} else if is {
			leaks = append(leaks, h.leak)
		}
	}
	slices.SortStableFunc(leaks, func(a, b agent.Leak) int { return a.Address.Compare(b.Address) })
	slices.Sort(failed)
	return leaks, failed
}

// pooled are the addresses of the agent's own pools.
func (s *Server) pooled() []held {
	var out []held
	for _, l := range s.View.IPAM.Leases() {
		for _, ip := range l.IPs {
			h := held{leak: agent.Leak{Address: ip, Subnet: l.Subnet}, owner: l.Owner.Key}
			h.leak.Namespace, h.leak.Pod = l.Owner.Pod.Namespace, l.Owner.Pod.Name
			h.still = func() bool {
				return slices.ContainsFunc(s.View.IPAM.Who(ip), func(now core.Lease) bool { return now.Subnet == l.Subnet && now.Owner.Key == l.Owner.Key })
			}
			out = append(out, h)
		}
	}
	return out
}

// judge completes a leak; false where the holder lives, or holds it no more. The
// caller has the container's turn.
func (s *Server) judge(h *held) (bool, error) {
	h.leak.Container, h.leak.IfName = h.owner.Container, h.owner.IfName
	for _, rec := range s.View.Journal.Container(h.owner.Container) {
		if !holds(rec, *h) {
			continue
		}
		h.leak.AttachmentRef = ref(rec)
		collected, err := engine.Collectable(rec.Orphan, rec.Netns)
		switch {
		case err != nil:
			return false, err
		case collected && !rec.Orphan:
			h.leak.Reason, h.leak.Free = collectedFor(rec), "fairlead gc"
		case collected:
			h.leak.Reason, h.leak.Free = collectedFor(rec), force(rec)
		case rec.Phase != core.Added:
			h.leak.Reason = fmt.Sprintf("%s and not finished; the agent goes on: %s", rec.Phase, rec.Error)
			h.leak.Free = force(rec)
		default:
			return false, nil
		}
		return h.still(), nil
	}
	switch {
	case h.leak.File == "":
		h.leak.Reason, h.leak.Free = "an ADD that could not be recorded, and is not undone yet", "fairlead gc"
	case h.owner.Container == "":
		h.leak.Reason = "its file names nobody: it was cut off; the network's next ADD, DEL or GC frees it"
		h.leak.Free, h.leak.Unproven = "rm "+h.leak.File, true
	default:
		h.leak.Reason = "no attachment of this agent has it; make sure that no runtime knows the container (`crictl inspectp`): whoever else uses the folder may have given it"
		h.leak.Free, h.leak.Unproven = "rm "+h.leak.File, true
	}
	return h.still(), nil
}

// force is the command that ends an attachment whatever its plugins say.
func force(rec core.Record) string {
	command := "fairlead detach --force --container-id " + rec.Key.Container
	if rec.Key.IfName != defaultIfName {
		command += " --ifname " + rec.Key.IfName
	}
	return command
}

// defaultIfName is what `detach` takes where no interface is named.
const defaultIfName = "eth0"

// holds tells that an attachment is the one for which an address is held.
func holds(rec core.Record, h held) bool {
	if h.leak.File == "" {
		return slices.ContainsFunc(record.Held([]core.Record{rec}), func(l core.Lease) bool {
			return l.Subnet == h.leak.Subnet && l.Owner.Key == h.owner && slices.Contains(l.IPs, h.leak.Address)
		})
	}
	return slices.ContainsFunc(record.AllSpecs(rec), func(spec core.Spec) bool {
		return spec.Kind() == core.KindDelegate && spec.Key.Container == h.owner.Container && (h.owner.IfName == "" || spec.Key.IfName == h.owner.IfName)
	})
}

// calls are those of the plugins that attachments of the journal have, and of those
// that pods can name.
func (s *Server) calls() []core.Exec {
	var out []core.Exec
	for _, rec := range s.View.Journal.Records() {
		for _, spec := range record.AllSpecs(rec) {
			if spec.Kind() == core.KindDelegate {
				out = append(out, *spec.Exec)
			}
		}
	}
	for _, nad := range s.View.NADs() {
		chain, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
		if err != nil {
			continue // no pod gets it either
		}
		for _, p := range chain.Plugins {
			out = append(out, core.Exec{Type: p.Type, Network: chain.Name, Conf: p.Raw})
		}
	}
	return out
}
