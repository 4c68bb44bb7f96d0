package hostport

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// place is what two pods cannot both have: a port of a protocol, and of one
// family. Whoever has it on all addresses shares it with nobody.
type place struct {
	protocol string
	port     uint16
	v4       bool
}

// claim is one pod's hold on a place; an invalid address is all of them.
type claim struct {
	addr netip.Addr
	by   core.Key
}

func (c claim) meets(o claim) bool {
	return !c.addr.IsValid() || !o.addr.IsValid() || c.addr == o.addr
}

// claims are those of a pod, by place.
func (e entry) claims() map[place][]claim {
	out := map[place][]claim{}
	for _, p := range e.ports {
		for _, a := range e.addrs {
			if !serves(p, a.Addr()) {
				continue
			}
			c := claim{by: e.key}
			if isBound(p) {
				c.addr = p.HostIP
			}
			at := place{p.Protocol, p.HostPort, a.Addr().Is4()}
			out[at] = append(out[at], c)
		}
	}
	return out
}

// itself refuses a pod that leads one port to two places.
func (e entry) itself() error {
	for at, list := range e.claims() {
		for i := range list {
			for j := range i {
				if list[i].meets(list[j]) {
					return core.Errorf(core.CodeConflict, "host port %d/%s is asked for twice", at.port, at.protocol)
				}
			}
		}
	}
	return nil
}

// rivals are the pods that hold what e claims.
func (t *Table) rivals(e entry) map[core.Key]place {
	out := map[core.Key]place{}
	for at, list := range e.claims() {
		for _, mine := range list {
			for _, other := range t.held[at] {
				if other.by != e.key && mine.meets(other) {
					out[other.by] = at
				}
			}
		}
	}
	return out
}

// yields tells that a pod's ports may go to another: that is a later sandbox of
// the same pod, or the pod's namespace is proven gone and only its DEL is still
// to come.
func (e entry) yields(to entry) bool {
	if !to.pod.IsZero() && e.pod.String() == to.pod.String() && e.key.Container != to.key.Container {
		return true
	}
	ns, err := netns.Verify(e.netns)
	if err == nil {
		_ = ns.Close()
	}
	return errors.Is(err, core.ErrNetnsGone)
}

// refuses is the error for whoever wants a port that e has.
func (e entry) refuses(at place) error {
	who := "pod " + e.pod.String()
	if e.pod.IsZero() {
		who = "container " + e.key.Container
	}
	return &core.Error{
		Code: core.CodeConflict, Msg: fmt.Sprintf("host port %d/%s is taken by %s", at.port, at.protocol, who),
		Details: fmt.Sprintf("container %s, interface %s", e.key.Container, e.key.IfName), Err: core.ErrExists,
	}
}
