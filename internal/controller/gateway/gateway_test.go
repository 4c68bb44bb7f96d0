package gateway_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// plans is a Keeper with nodes n1, n2 and n3 and one Subnet.
type plans struct {
	*gateway.Keeper
	nodes  []gateway.Node
	subnet gateway.Subnet
	last   gateway.Plan
}

func newPlans(spec v1.SubnetSpec) *plans {
	p := &plans{Keeper: gateway.New(), subnet: gateway.Subnet{Subnet: core.Subnet{Name: "web"}, By: declare.ReadGateway(spec)}}
	for i, name := range []string{"n1", "n2", "n3"} {
		p.nodes = append(p.nodes, gateway.Node{Name: name, Chassis: "c-" + name, Labels: map[string]string{"edge": name},
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{100, 64, 0, byte(i + 2)})}})
	}
	return p
}

// look plans, and gives the verdict once the rows are written.
func (p *plans) look() gateway.Verdict {
	p.last = p.Plan([]gateway.Subnet{p.subnet}, p.nodes)
	p.Written(p.last)
	v, _ := p.Verdict("web")
	return v
}

// reasons are those of the events of the last plan.
func (p *plans) reasons() (out []string) {
	for _, e := range p.last.Events {
		out = append(out, e.Reason)
	}
	return out
}

// centralized is a Subnet's spec with such gateways.
func centralized(nodes string) v1.SubnetSpec {
	return v1.SubnetSpec{GatewayType: v1.GatewayCentralized, GatewayNode: nodes}
}

// TestStandbyKeeps: of two gateways the first one is active; the other keeps what it took
// while the first one was bad, also when that is back, until it is bad itself.
func TestStandbyKeeps(t *testing.T) {
	t.Parallel()
	p := newPlans(centralized("n2, n1"))
	v := p.look()
	require.Equal(t, "n2", v.Active)
	require.Equal(t, []string{"n2", "n1"}, v.Ready)
	p.nodes[1].Down = "Ready is Unknown"
	v = p.look()
	require.Equal(t, "n1", v.Active)
	require.Equal(t, []string{"node n2: Ready is Unknown"}, v.Faults)
	require.Equal(t, []string{gateway.ReasonNode}, p.reasons())
	p.nodes[1].Down = ""
	require.Equal(t, "n1", p.look().Active, "n2 is back")
	require.Empty(t, p.reasons())
	p.nodes[0].Down = "Ready is False"
	require.Equal(t, "n2", p.look().Active)

	// Of bad ones it is one that answers; where none does it stays who it is.
	for _, bad := range [][3]string{
		{"Ready is Unknown", gateway.Silence, "n1"}, {gateway.Silence, "Ready is Unknown", "n2"}, {"Ready is Unknown", "Ready is Unknown", "n2"}, {gateway.Silence, gateway.Silence, "n2"},
	} {
		p.nodes[0].Down, p.nodes[1].Down = bad[0], bad[1]
		require.Empty(t, p.look().Active)
		p.nodes[0].Down, p.nodes[1].Down = "", ""
		require.Equal(t, bad[2], p.look().Active, "it was that before too")
	}
	p.nodes[0].Down = "Ready is False"

	// A new leader goes on with what the status says, and leaves that until it has written.
	p.Keeper, p.subnet.Was, p.nodes[0].Down = gateway.New(), "n1", ""
	o := &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: v1.SubnetStatus{ActivateGateway: "n1", Conditions: []v1.Condition{{Type: v1.ConditionGateway}}}}
	active, conditions := p.Status(o)
	require.Equal(t, "n1", active)
	require.Empty(t, conditions)
	require.Equal(t, "n1", p.look().Active)
	active, conditions = p.Status(o)
	require.Equal(t, "n1", active)
	require.Equal(t, "CarriedOut", conditions[0].Reason)
}

// TestShares: with ECMP all good gateways are it at once.
func TestShares(t *testing.T) {
	t.Parallel()
	spec := centralized("n1,n2,n3")
	spec.EnableEcmp = true
	p := newPlans(spec)
	v := p.look()
	require.Equal(t, []string{"n1", "n2", "n3"}, v.Ready)
	require.Empty(t, v.Active)
	p.nodes[0].Down = "Ready is Unknown"
	require.Equal(t, []string{"n2", "n3"}, p.look().Ready)
	require.Equal(t, []string{gateway.ReasonNode}, p.reasons())
}

// TestBadGateways: what is wrong with gateways is told by name, and costs no other.
func TestBadGateways(t *testing.T) {
	t.Parallel()
	p := newPlans(centralized("nowhere, n1:172.18.0.2, n1:fd00::2, n2:x, -, n1:10.0.0.1"))
	v := p.look()
	require.Equal(t, "n1", v.Active)
	require.Equal(t, []string{"n1", "n2"}, v.Ready)
	require.Equal(t, []string{
		`spec.gatewayNode: "x" of node n2 is not an address as which pods can be seen`, `spec.gatewayNode: "-" is not a node's name`,
		"spec.gatewayNode: node n1 has a second address of one family, 10.0.0.1", "spec.gatewayNode: there is no node nowhere",
	}, v.Faults)

	// One that leaves, and one that is none yet.
	p.nodes[1].Chassis = ""
	p.nodes = p.nodes[1:]
	v = p.look()
	require.Empty(t, v.Active)
	require.Contains(t, v.Why(), "no gateway is ready: ")
	require.Contains(t, v.Why(), "there is no node n1; node n2 is no chassis of OVN yet")
	require.Equal(t, []string{gateway.ReasonNone}, p.reasons())
	require.Equal(t, []string{"web"}, p.last.Changed)
	p.look()
	require.Empty(t, p.last.Events)

	p.subnet.By = declare.Gateway{Centralized: true}
	require.Contains(t, p.look().Why(), "name no node")
	p.subnet.By.Selectors = []metav1.LabelSelector{{}, {MatchLabels: map[string]string{"edge": "n3"}}}
	require.Equal(t, "n3", p.look().Active)
	p.subnet.By = declare.Gateway{}
	p.look()
	require.Equal(t, []string{gateway.ReasonType}, p.reasons())
	require.Equal(t, []string{"web"}, p.last.Changed)
	_, still := p.Verdict("web")
	require.False(t, still)
}

// TestAnotherSubnetOfTheName: what is remembered of a Subnet goes with it.
func TestAnotherSubnetOfTheName(t *testing.T) {
	t.Parallel()
	p := newPlans(centralized("n1, n2"))
	p.nodes[0].Down = "Ready is Unknown"
	require.Equal(t, "n2", p.look().Active)
	p.nodes[0].Down = ""
	p.Written(p.Plan(nil, p.nodes))
	require.Equal(t, "n1", p.look().Active)
	p.Written(p.Plan(nil, p.nodes))
	p.subnet.By = declare.Gateway{}
	p.look()
	require.Empty(t, p.reasons(), "it was never of another type")
}

// TestEventsFollowRows: what a plan whose rows were not written would have told is told
// of the first one that is written, and of what never was nothing is.
func TestEventsFollowRows(t *testing.T) {
	t.Parallel()
	p := newPlans(centralized("n1, n2"))
	p.look()
	plan := func() { p.last = p.Plan([]gateway.Subnet{p.subnet}, p.nodes) }
	p.nodes[0].Down = "Ready is Unknown"
	for range 2 {
		plan()
		require.Equal(t, []string{gateway.ReasonNode}, p.reasons())
		v, _ := p.Verdict("web")
		require.Equal(t, "n1", v.Active, "it is in the database yet")
	}
	p.nodes[0].Down = ""
	require.Equal(t, "n1", p.look().Active, "n2 never was it")
	require.Empty(t, p.last.Events)
	require.Empty(t, p.last.Changed)

	p.subnet.By.Centralized = false
	plan()
	p.look()
	require.Equal(t, []string{gateway.ReasonType}, p.reasons())
}
