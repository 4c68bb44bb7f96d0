package question

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/trace"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// orSilent stands for an answer that is none.
func orSilent(err error) error {
	if err == nil {
		return errors.New("ofproto/trace does not say what is done with the packet")
	}
	return err
}

// alone traces where OVN is not, or cannot be asked: what this node's switch does
// with the packet is all that is known.
func (t *tracing) alone(ctx context.Context) error {
	from, err := t.Agent.Pod(ctx, t.pod)
	if err != nil {
		return hint.On(fmt.Errorf("nobody is there to trace a packet of pod %s: %s; %w", t.pod, strings.Join(t.out.Unasked, "; "), err),
			"run it on the pod's node, or name OVN's southbound database with --sb")
	}
	to, err := t.near(ctx)
	if err != nil {
		return err
	}
	src, ip := ownNIC(from, to.ip)
	if src.Port == nil || !ip.IsValid() {
		return fmt.Errorf("pod %s has no port of the switch with an address of the family of %s", t.pod, to.ip)
	}
	t.out.To = to.text
	t.out.Packet = trace.Packet{InPort: src.HostIf, SrcMAC: src.MAC, DstMAC: to.mac, Src: ip.String(), Dst: to.ip.String(), Protocol: t.protocol, Port: t.port, SourcePort: 40000}
	if to.subnet != src.Subnet || to.mac == "" {
		if t.out.Packet.DstMAC, err = t.gatewayMAC(ctx, src.Subnet); err != nil {
			return err
		}
		t.out.step("gateway", "%s is not in Subnet %s: the packet goes to the gateway's port %s", to.ip, src.Subnet, standalone.PortName(src.Subnet))
	}
	text, err := ovs.Command(ctx, t.Flags["ovsdb"], "ofproto/trace", t.Flags["bridge"], t.out.Packet.Flow(src.Port.OFPort))
	found, is := trace.ReadSwitched(text)
	if err != nil || !is {
		return orSilent(err)
	}
	t.out.Switch, t.out.Arrives = &found, !found.Drops
	t.out.Steps = append([]Step{{"out of pod", fmt.Sprintf("%s, port %d of %s", src.HostIf, src.Port.OFPort, t.Flags["bridge"])}}, t.out.Steps...)
	if found.Drops {
		t.out.step("switch", "drops it: %s", found.Rule)
		t.out.Verdict = "DROPPED by this node's switch: " + found.Rule
		return nil
	}
	t.out.step("switch", "sends it on: %s", found.Actions)
	t.out.Verdict = "PASSES this node's switch; what is behind it is not known here"
	return nil
}

// neighbour is where a packet is sent, as an agent knows it.
type neighbour struct {
	ip                netip.Addr
	text, mac, subnet string
}

// near finds what DST means on this node.
func (t *tracing) near(ctx context.Context) (neighbour, error) {
	ip, err := netip.ParseAddr(t.Args[1])
	if err == nil {
		out := neighbour{ip: ip, text: ip.String()}
		who, err := t.Agent.Who(ctx, ip.String())
		for _, i := range who.Items {
			out.subnet, out.mac = i.Subnet, i.MAC
		}
		return out, err
	}
	if strings.HasPrefix(t.Args[1], "svc/") {
		return neighbour{}, errors.New("without OVN Services are kube-proxy's: name a pod or an address")
	}
	pod, err := client.ParsePod(t.Args[1], t.pod.Namespace)
	if err != nil {
		return neighbour{}, err
	}
	found, err := t.Agent.Pod(ctx, pod)
	if err != nil {
		return neighbour{}, fmt.Errorf("pod %s: %w", pod, err)
	}
	want := netip.IPv4Unspecified()
	if t.On("ipv6") {
		want = netip.IPv6Unspecified()
	}
	nic, ip := ownNIC(found, want)
	if !ip.IsValid() {
		return neighbour{}, fmt.Errorf("pod %s has no address of that family: %w", pod, core.ErrNotFound)
	}
	return neighbour{ip, fmt.Sprintf("pod %s (%s)", pod, ip), nic.MAC, nic.Subnet}, nil
}

// ownNIC is a pod's first interface of ours with an address of the family of another.
func ownNIC(p agent.Pod, like netip.Addr) (agent.Interface, netip.Addr) {
	for _, a := range p.Attachments {
		for _, i := range a.Interfaces {
			for _, addr := range i.Addresses {
				if i.Subnet != "" && addr.Addr().Is4() == like.Is4() {
					return i, addr.Addr()
				}
			}
		}
	}
	return agent.Interface{}, netip.Addr{}
}

// gatewayMAC is the MAC of the port that holds a Subnet's gateway.
func (t *tracing) gatewayMAC(ctx context.Context, subnet string) (string, error) {
	db, err := rows.Open(ctx, rows.Switch, rows.Place{Endpoint: t.Flags["ovsdb"]}, false)
	if err != nil {
		return "", err
	}
	defer db.Close()
	name := standalone.PortName(subnet)
	found, err := db.Select(ctx, "Interface", []string{"mac_in_use"}, rows.Is("name", name))
	if err != nil {
		return "", err
	}
	for _, r := range found {
		if mac := rows.Text(r["mac_in_use"]); mac != "" {
			return mac, nil
		}
	}
	return "", fmt.Errorf("the gateway of Subnet %s has no port %s here", subnet, name)
}
