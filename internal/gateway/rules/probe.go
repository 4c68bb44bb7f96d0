package rules

import "net/netip"

// ProbePort is where the proxy of probes listens, at the node's loopback addresses; ProbeMark
// is on packets of the node that go there, and ProbeTable the table of routes that has them
// come back in. Numbers are Kube-OVN's (sdn.md, section 9).
const (
	ProbePort  = 8102
	ProbeMark  = 0x90003
	ProbeTable = 10001
	proxyMark  = 0x90004
)

// Probe is a port of a pod that the node itself asks, and has no route to: it is in a Vpc
// of its own.
type Probe struct {
	To   netip.AddrPort
	Open bool // the pod listens; otherwise the node is refused
}

// ProxyAt is where the proxy listens for a family.
func ProxyAt(v6 bool) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.IPv6Loopback(), ProbePort)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ProbePort)
}

// probed are those of the family.
func (c *computation) probed() (out []Probe) {
	for _, p := range c.Probes {
		if p.To.Addr().Is6() == c.v6 {
			out = append(out, p)
		}
	}
	return out
}

// probes lead what the node itself sends to such ports to the proxy, and nothing that
// others send: a marked packet comes back in by lo, where it is taken.
func (c *computation) probes() {
	var out, in []Rule
	for _, p := range c.probed() {
		if !p.Open {
			continue
		}
		to := Rule{Dst: netip.PrefixFrom(p.To.Addr(), p.To.Addr().BitLen()), Proto: "tcp", Port: p.To.Port()}
		back := to
		to.Do, to.Does = mark(ProbeMark, every), "what the node sends to a pod's probed port is marked, and comes back in"
		back.In, back.Does = "lo", "there the proxy takes it"
		back.Do = Action{Verb: Proxy, To: ProxyAt(c.v6).Addr(), Port: ProbePort, Mark: Mark{Value: proxyMark, Mask: every}}
		out, in = append(out, to), append(in, back)
	}
	if len(out) > 0 {
		c.chain(Mangle, "PREROUTING", "PREROUTING", in)
		c.chain(Mangle, "OUTPUT", "OUTPUT", out)
	}
}

// untranslated has such packets pass the rules about marks, of which theirs has bits.
func (c *computation) untranslated() []Rule {
	if len(c.probed()) == 0 {
		return nil
	}
	return []Rule{{Mark: Mark{Value: ProbeMark, Mask: every}, Do: Action{Verb: Return}, Does: "what goes to the proxy of probes is left alone"}}
}

// closed refuse the node what a pod would refuse, and nobody beyond the node is asked.
func (c *computation) closed() (out []Rule) {
	for _, p := range c.probed() {
		if !p.Open {
			out = append(out, Rule{
				Dst: netip.PrefixFrom(p.To.Addr(), p.To.Addr().BitLen()), Proto: "tcp", Port: p.To.Port(),
				Do: Action{Verb: Reject}, Does: "a probed port at which the pod does not listen refuses the node",
			})
		}
	}
	return out
}
