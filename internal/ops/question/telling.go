package question

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/ops/trace"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// telling puts ovn-trace's words into an operator's.
type telling struct {
	t     *tracing
	sb    *south
	from  binding
	to    target
	rules named
}

// path tells the way, half by half.
func (p telling) path(passes []*trace.Pass) {
	out := &p.t.out
	out.step("out of pod", "port %s on %s, %s", p.from.name, p.node(p.from), p.from.mac)
	dropped := trace.Dropped(passes)
	for _, pass := range passes {
		for _, f := range pass.Flows {
			if f == dropped {
				p.dropped(pass, f)
				return
			}
			p.flow(pass, f)
		}
	}
	p.arrived(passes)
}

// node is where a port is, in words.
func (p telling) node(b binding) string {
	if name := p.sb.chassis[b.chassis]; name != "" {
		return "node " + name
	}
	return "no node"
}

// flow tells of a flow that let the packet pass.
func (p telling) flow(pass *trace.Pass, f *trace.Flow) {
	out := &p.t.out
	switch {
	case f.Security() && !pass.Egress && pass.InPort == p.from.name && strings.Contains(f.Stage, "check_port_sec"):
		out.step("port security", "the packet is from the pod's own MAC and address")
	case f.Rule():
		out.step("policy", "%s lets it pass (%s): %s", p.object(f), direction(f), f.Match)
	case f.Balanced() != "":
		out.step("Service", "%s: endpoint %s%s", f.Balanced(), p.to.backend, others(p.to))
	case f.Route() != "":
		out.step("router", "%s: %s", pass.Datapath, f.Route())
	case f.Policy() != "":
		out.step("router", "%s: policy route %d, %s", pass.Datapath, f.Priority, f.Policy())
	}
}

func others(to target) string {
	if len(to.all) < 2 {
		return ""
	}
	return fmt.Sprintf(", the first of %d; another connection may get another", len(to.all))
}

// direction tells on which side a rule stands.
func direction(f *trace.Flow) string {
	if f.Egress {
		return "towards the receiver"
	}
	return "out of the sender"
}

// object names what made a rule.
func (p telling) object(f *trace.Flow) string {
	if name := p.rules[f.UUID]; name != "" {
		return name
	}
	return "a rule of OVN"
}

// dropped tells where the way ends.
func (p telling) dropped(pass *trace.Pass, f *trace.Flow) {
	out := &p.t.out
	last := p.lastRule(pass)
	switch {
	case f.Security():
		p.insecure(pass)
	case f.Rule():
		out.step("policy", "%s drops it (%s): %s", p.object(f), direction(f), f.Match)
		out.Verdict = "DROPPED by " + p.object(f)
	case strings.Contains(f.Stage, "_acl") && last != nil:
		out.step("policy", "%s drops it (%s): %s", p.object(last), direction(last), last.Match)
		out.Verdict = "DROPPED by " + p.object(last)
	case f.Route() != "":
		out.step("router", "%s has no route to %s", pass.Datapath, p.to.ip)
		out.Verdict = fmt.Sprintf("DROPPED: router %s has no route to %s", pass.Datapath, p.to.ip)
	case f.Asks():
		out.step("router", "%s asks for the MAC of %s, which no port of OVN has", pass.Datapath, p.to.ip)
		out.Verdict = fmt.Sprintf("LOST: no port of OVN has %s; whether anybody outside answers is not known here", p.to.ip)
	case f.Unknown():
		out.step("switch", "no port of %s has %s", pass.Datapath, p.to.ip)
		out.Verdict = fmt.Sprintf("DROPPED: nobody in OVN has %s", p.to.ip)
	case p.to.service != "" && p.to.backend == "":
		out.step("Service", "%s has no endpoint that is ready", p.to.service)
		out.Verdict = "REFUSED: Service " + p.to.service + " has no endpoint that is ready"
	default:
		out.step("OVN", "%s: %s (priority %d) drops it", pass.Datapath, f.Match, f.Priority)
		out.Verdict = fmt.Sprintf("DROPPED in %s by OVN's stage %s", pass.Datapath, f.Stage)
	}
}

// insecure tells of a packet that port security takes.
func (p telling) insecure(pass *trace.Pass) {
	port, why := pass.InPort, "the packet is not from the pod's own MAC and address"
	if pass.Egress {
		port, why = pass.OutPort, pass.OutPort+" takes packets for its own MAC and addresses alone"
	}
	p.t.out.step("port security", "%s", why)
	p.t.out.Verdict = "DROPPED by port security of " + port
}

// lastRule is the last rule of a half: in newer versions of OVN it decides, and a
// later stage acts.
func (p telling) lastRule(pass *trace.Pass) (last *trace.Flow) {
	for _, f := range pass.Flows {
		if f.Rule() {
			last = f
		}
	}
	return last
}

// arrived tells where the packet comes out.
func (p telling) arrived(passes []*trace.Pass) {
	out := &p.t.out
	end := ""
	for _, pass := range passes {
		if pass.Output != "" && pass.Type != "patch" {
			end = pass.Output
		}
	}
	at, ok := p.sb.port(end)
	if !ok {
		out.Verdict = "LOST: OVN does not say where the packet comes out"
		return
	}
	switch at.chassis {
	case "":
		out.step("to node", "%s is on no node: its sandbox is not there yet, or ovn-controller does not run there", at)
		out.Verdict = fmt.Sprintf("LOST: %s is on no node", at)
		return
	case p.from.chassis:
		out.step("to node", "%s itself", strings.TrimPrefix(p.node(at), "node "))
	default:
		out.step("to node", "%s by tunnel %s", strings.TrimPrefix(p.node(at), "node "), p.sb.tunnels[at.chassis])
	}
	out.Arrives = true
	if at.node != "" {
		out.step("into node", "%s by its ovn0; its routes and filters decide from there", at.node)
		out.Verdict = "LEAVES OVN by node " + at.node
		return
	}
	out.step("into pod", "%s, port %s", strings.TrimPrefix(at.String(), "pod "), at.name)
	out.Verdict = "ARRIVES at " + at.String()
}

// onNode asks the switch of this node, if the pod is here.
func (t *tracing) onNode(ctx context.Context, from binding, sb *south) {
	endpoint := t.Flags["ovsdb"]
	ofport, bridge, err := t.ofport(ctx, endpoint, from.name)
	if err != nil {
		where := ""
		if name := sb.chassis[from.chassis]; name != "" {
			where = " (run it on node " + name + ")"
		}
		t.out.unasked("the switch of the pod's node"+where, err)
		return
	}
	text, err := ovs.Command(ctx, endpoint, "ofproto/trace", bridge, t.out.Packet.Flow(ofport))
	found, is := trace.ReadSwitched(text)
	if err != nil || !is {
		t.out.unasked("the switch of the pod's node", orSilent(err))
		return
	}
	t.out.Switch = &found
	switch {
	case found.Drops && t.out.Arrives:
		t.out.step("this switch", "%s drops it: %s", bridge, found.Rule)
		t.out.Arrives = false
		t.out.Verdict = "DROPPED by this node's switch, which differs from OVN: ovn-controller is behind, or has lost the southbound database"
	case found.Drops:
		t.out.step("this switch", "%s drops it too", bridge)
	case found.Tunnel:
		t.out.step("this switch", "%s sends it into the tunnel", bridge)
	default:
		t.out.step("this switch", "%s sends it on: %s", bridge, found.Actions)
	}
}

// ofport is the port of this node's switch that is a logical one, with its bridge.
func (t *tracing) ofport(ctx context.Context, endpoint, port string) (int, string, error) {
	db, err := rows.Open(ctx, rows.Switch, rows.Place{Endpoint: endpoint}, false)
	if err != nil {
		return 0, "", err
	}
	defer db.Close()
	found, err := db.Select(ctx, "Interface", []string{"name", "ofport", "external_ids"})
	if err != nil {
		return 0, "", err
	}
	for _, r := range found {
		if n := rows.Number(r["ofport"]); n > 0 && rows.Map(r["external_ids"])["iface-id"] == port {
			return n, t.Flags["bridge"], nil
		}
	}
	return 0, "", fmt.Errorf("it has no port %s: the pod is on another node", port)
}
