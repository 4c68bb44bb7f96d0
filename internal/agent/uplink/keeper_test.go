package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// given notes which networks have a NIC, and moves none.
type given struct{ nics map[string]string }

func (g *given) Take(_ context.Context, w uplink.Want) (uplink.Status, error) {
	g.nics[w.Network] = w.NIC
	return uplink.Status{NIC: w.NIC, Bridge: uplink.BridgeOf(w.Network)}, nil
}

func (g *given) Return(_ context.Context, network string) error {
	delete(g.nics, network)
	return nil
}

func (g *given) Resume(context.Context) error  { return nil }
func (g *given) Strays() []uplink.Want         { return nil }
func (g *given) Show() ([]uplink.Shown, error) { return nil, nil }

func (g *given) All() (out []core.Uplink) {
	for network, nic := range g.nics {
		out = append(out, core.Uplink{Network: network, NIC: nic})
	}
	return out
}

// nobody uses a VLAN.
func nobody(context.Context) []core.Way { return nil }

// TestRefusedChangeTakesNothing: a network that asks for what is not done, or whose
// selector cannot be read, keeps the NIC that it has; one that leaves the node out gives
// it back.
func TestRefusedChangeTakesNothing(t *testing.T) {
	t.Parallel()
	spec, unread := v1.ProviderNetworkSpec{DefaultInterface: "eth1"}, false
	has := &given{nics: map[string]string{}}
	var said map[string]string
	k := New(Config{
		Node: "n1", Transfers: has, Used: nobody, Log: slog.New(slog.DiscardHandler),
		Underlay: func() (declare.Underlay, error) {
			if unread {
				return declare.Underlay{Node: true, Unread: []string{"net1"}}, nil
			}
			return declare.Underlay{Node: true, Networks: []v1.ProviderNetwork{{ObjectMeta: metav1.ObjectMeta{Name: "net1"}, Spec: spec}}}, nil
		},
		Tell: func(_ context.Context, _, notes map[string]string) error { said = notes; return nil },
	})
	pass := func() { t.Helper(); require.NoError(t, k.pass(t.Context())) }
	pass()
	require.Equal(t, map[string]string{"net1": "eth1"}, has.nics)

	spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	pass()
	require.Equal(t, map[string]string{"net1": "eth1"}, has.nics)
	require.Contains(t, said["net1.provider-network.kubernetes.io/err_mesg"], "spec.nodeSelector")

	unread = true
	pass()
	require.Equal(t, map[string]string{"net1": "eth1"}, has.nics)

	unread, spec.NodeSelector, spec.ExcludeNodes = false, nil, []string{"n1"}
	pass()
	require.Empty(t, has.nics)
}

// TestRulesThatNameANIC: of rules that a NIC's packets pass by from now on the Node is told once
// for each NIC; where the bridge is called as the NIC was there are none.
func TestRulesThatNameANIC(t *testing.T) {
	t.Parallel()
	spec := v1.ProviderNetworkSpec{DefaultInterface: "eth1"}
	var asked, said []string
	k := New(Config{
		Node: "n1", Transfers: &given{nics: map[string]string{}}, Used: nobody, Log: slog.New(slog.DiscardHandler),
		Underlay: func() (declare.Underlay, error) {
			return declare.Underlay{Node: true, Networks: []v1.ProviderNetwork{{ObjectMeta: metav1.ObjectMeta{Name: "net1"}, Spec: spec}}}, nil
		},
		Names: func(_ context.Context, nic, bridge string) ([]string, error) {
			asked = append(asked, nic+" "+bridge)
			return []string{"chain INPUT: -i " + nic + " -j DROP", "another"}[:2*len(asked)%4], core.ErrUnavailable
		},
		Warn: func(reason, note string) { said = append(said, reason+": "+note) },
	})
	for _, c := range []struct {
		nic       string
		exchanged bool
	}{{"eth1", false}, {"eth1", false}, {"eth2", false}, {"eth2", true}, {"eth2", false}} {
		spec.DefaultInterface, spec.ExchangeLinkName = c.nic, c.exchanged
		require.NoError(t, k.pass(t.Context()))
	}
	require.Equal(t, []string{"eth1 br-net1", "eth2 br-net1", "eth2 br-net1"}, asked)
	require.Len(t, said, 2)
	require.Contains(t, said[0], "RulesNameNIC: 2 rules of the packet filter name eth1, whose packets come and go by br-net1 of provider network net1 now")
	require.Contains(t, said[0], "The first: chain INPUT: -i eth1 -j DROP")
}

// pulledOut are transfers whose NIC is not there.
type pulledOut struct {
	*given
	takes chan struct{}
}

func (p pulledOut) Take(ctx context.Context, _ uplink.Want) (uplink.Status, error) {
	select {
	case p.takes <- struct{}{}:
	case <-ctx.Done():
	}
	return uplink.Status{}, core.ErrNotFound
}

// TestWaitsForANIC: while a network's NIC is gone each link that comes has it looked for, not
// the pauses between attempts, of which a dozen take minutes.
func TestWaitsForANIC(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	gone := pulledOut{&given{nics: map[string]string{}}, make(chan struct{})}
	k := New(Config{
		Node: "n1", Transfers: gone, Used: nobody, Log: slog.New(slog.DiscardHandler),
		Underlay: func() (declare.Underlay, error) {
			return declare.Underlay{Node: true, Networks: []v1.ProviderNetwork{{ObjectMeta: metav1.ObjectMeta{Name: "net1"}, Spec: v1.ProviderNetworkSpec{DefaultInterface: "eth1"}}}}, nil
		},
	})
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		netnstest.Do(t, ns, func() error { k.Run(ctx); return nil })
	}()
	look := func(what string) {
		t.Helper()
		select {
		case <-gone.takes:
		case <-ctx.Done():
			require.Fail(t, "not looked for", what)
		}
	}
	look("at the start")
	look("because the first look heard of nothing")
	for i := range 12 {
		netnstest.Do(t, ns, func() error { return exec.Command("ip", "link", "add", fmt.Sprintf("v%d", i), "type", "veth").Run() })
		look(fmt.Sprintf("after v%d came", i))
		for more := true; more; { // a pair is two links, each with more news than one
			select {
			case <-gone.takes:
			case <-time.After(200 * time.Millisecond):
				more = false
			}
		}
	}
	stop()
	<-ended
}
