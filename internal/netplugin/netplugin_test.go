package netplugin_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/netplugin"
)

// plugin is one whose operations wait until they are let go.
type plugin struct {
	name string

	mu       sync.Mutex
	seen     []string
	enter    chan string   // tells each operation that has begun
	leave    chan struct{} // lets one end; nil: at once
	fails    error
	attached []netplugin.Pod
	collects int
}

func (p *plugin) Name() string { return p.name }

func (*plugin) Init(context.Context, netplugin.Host, netplugin.Settings) error { return nil }

func (p *plugin) Event(_ context.Context, name string, details map[string]string) error {
	p.note(name + " " + details[netplugin.DetailPodCIDR])
	return nil
}

func (*plugin) Capabilities() map[netplugin.Capability]bool { return nil }

func (p *plugin) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, what)
}

func (p *plugin) operate(what string, pod netplugin.Pod) error {
	p.note(what + " " + pod.Sandbox)
	if p.enter != nil {
		p.enter <- pod.Sandbox
		<-p.leave
	}
	return p.fails
}

func (p *plugin) SetUpPod(_ context.Context, pod netplugin.Pod) error { return p.operate("up", pod) }

func (p *plugin) TearDownPod(_ context.Context, pod netplugin.Pod) error {
	return p.operate("down", pod)
}

func (p *plugin) GetPodNetworkStatus(context.Context, netplugin.Pod) (*netplugin.PodNetworkStatus, error) {
	return netplugin.StatusOf([]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}), p.fails
}

func (*plugin) Status(context.Context) error { return nil }

func (p *plugin) Attached() []netplugin.Pod { return p.attached }

func (p *plugin) Collect(_ context.Context, live map[string]bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collects++
	return nil
}

func named(names ...string) (out []netplugin.Plugin) {
	for _, n := range names {
		out = append(out, &plugin{name: n})
	}
	return out
}

// TestChoose: what is wrong with other plugins is told, and hides nobody.
func TestChoose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		plugins []netplugin.Plugin
		choice  string
		want    string // "": none
		errs    []string
	}{
		{"by name", named("cni", "kubenet", netplugin.NoOp), "kubenet", "kubenet", nil},
		{"empty", named("cni", netplugin.NoOp), "", netplugin.NoOp, nil},
		{"no-op", named("cni", netplugin.NoOp), "no-op", netplugin.NoOp, nil},
		{"noop", named("cni", netplugin.NoOp), "noop", netplugin.NoOp, nil},
		{"qualified no-op", named("cni", netplugin.NoOp), netplugin.NoOp, netplugin.NoOp, nil},
		{"a vendor's", named("vendor.example/net"), "vendor.example/net", "vendor.example/net", nil},
		{"unknown", named("cni"), "flannel", "", []string{`"flannel" is not known; there are cni`}},
		{"a bad name beside", named("not qualified", "cni"), "cni", "cni", []string{`"not qualified"`}},
		{"a bad name chosen", named("a/b/c", "cni"), "a/b/c", "", []string{`"a/b/c"`, "is not known"}},
		{"twice beside", named("cni", "x", "x"), "cni", "cni", []string{`"x": there is another one`}},
		{"twice chosen", named("cni", "cni"), "cni", "cni", []string{`"cni": there is another one`}},
		{"all wrong", named("-", "x", "x", "é"), "y", "", []string{`"-"`, `"x"`, `"é"`, `"y" is not known`}},
	} {
		got, err := netplugin.Choose(c.plugins, c.choice)
		if len(c.errs) == 0 {
			require.NoError(t, err, c.name)
		}
		for _, text := range c.errs {
			require.ErrorContains(t, err, text, c.name)
		}
		if c.want == "" {
			require.Nil(t, got, c.name)
			continue
		}
		require.NotNil(t, got, c.name)
		require.Equal(t, c.want, got.Name(), c.name)
	}
}

func TestEffectiveHairpin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, plugin string
		want         netplugin.Hairpin
	}{
		{"none", "kubenet", netplugin.HairpinNone},
		{"none", "cni", netplugin.HairpinNone},
		{"hairpin-veth", "kubenet", netplugin.HairpinVeth},
		{"hairpin-veth", "", netplugin.HairpinVeth},
		{"promiscuous-bridge", "kubenet", netplugin.PromiscuousBridge},
		{"promiscuous-bridge", "cni", netplugin.HairpinVeth},
		{"promiscuous-bridge", "", netplugin.HairpinVeth},
	} {
		got, err := netplugin.EffectiveHairpin(c.mode, c.plugin)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s with %q", c.mode, c.plugin)
	}
	for _, mode := range []string{"", "veth", "Hairpin-Veth", "promiscuous"} {
		_, err := netplugin.EffectiveHairpin(mode, "kubenet")
		require.ErrorContains(t, err, "is none of none, hairpin-veth, promiscuous-bridge", mode)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	in, out := "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
	for _, c := range []struct {
		notes map[string]string
		want  netplugin.Rates
		err   string
	}{
		{nil, netplugin.Rates{}, ""},
		{map[string]string{in: "10M"}, netplugin.Rates{Ingress: 10_000_000}, ""},
		{map[string]string{in: "1k", out: "1P"}, netplugin.Rates{Ingress: 1000, Egress: 1_000_000_000_000_000}, ""},
		{map[string]string{out: "1Mi"}, netplugin.Rates{Egress: 1 << 20}, ""},
		{map[string]string{in: "999"}, netplugin.Rates{}, "between 1k and 1P"},
		{map[string]string{out: "2P"}, netplugin.Rates{}, out},
		{map[string]string{in: "fast"}, netplugin.Rates{}, in},
	} {
		got, err := netplugin.RatesOf(c.notes)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

type observer struct {
	mu   sync.Mutex
	done map[string]int
	bad  map[string]int
}

func (o *observer) NetworkPluginDone(op string, _ time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[op]++
	if err != nil {
		o.bad[op]++
	}
}

// TestOneOperationAPod: those of a pod come one after the other, also of its
// earlier sandbox; pods do not wait for each other, and a status for nobody.
func TestOneOperationAPod(t *testing.T) {
	t.Parallel()
	p := &plugin{name: "p", enter: make(chan string), leave: make(chan struct{})}
	o := &observer{done: map[string]int{}, bad: map[string]int{}}
	m := netplugin.NewManager(p, o)
	first, second := netplugin.Pod{Sandbox: "1", Namespace: "ns", Name: "web"}, netplugin.Pod{Sandbox: "2", Namespace: "ns", Name: "web"}
	other := netplugin.Pod{Sandbox: "3", Namespace: "web", Name: "ns"}
	nameless := netplugin.Pod{Sandbox: "4"}
	done := make(chan error, 4)
	begin := func(do func(context.Context, netplugin.Pod) error, pod netplugin.Pod) {
		go func() { done <- do(t.Context(), pod) }()
	}
	begin(m.TearDownPod, first)
	require.Equal(t, "1", <-p.enter)
	begin(m.SetUpPod, second)
	begin(m.SetUpPod, other)
	require.Equal(t, "3", <-p.enter, "the second sandbox of the pod waits")
	begin(m.TearDownPod, nameless)
	require.Equal(t, "4", <-p.enter)
	st, err := m.GetPodNetworkStatus(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, "10.0.0.2", st.IP.String())
	require.Len(t, st.IPs, 2)

	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorContains(t, m.SetUpPod(ctx, first), "busy with an earlier operation")
	require.NoError(t, m.Collect(t.Context(), nobody))
	require.Zero(t, p.collects, "pods are being changed")
	for range 3 {
		p.leave <- struct{}{}
	}
	require.Equal(t, "2", <-p.enter)
	p.leave <- struct{}{}
	for range 4 {
		require.NoError(t, <-done)
	}
	require.NoError(t, m.Collect(t.Context(), nobody))
	require.Equal(t, 1, p.collects)
	require.Equal(t, map[string]int{"set_up_pod": 3, "tear_down_pod": 2, "get_pod_network_status": 1}, o.done)
	require.Equal(t, map[string]int{"set_up_pod": 1}, o.bad)
}

func nobody(context.Context) (map[string]bool, error) { return map[string]bool{}, nil }

// TestCollect: the plugin is asked for its pods before the list of sandboxes is
// made, so that none is missed that comes between.
func TestCollect(t *testing.T) {
	t.Parallel()
	p := &plugin{name: "p", attached: []netplugin.Pod{{Sandbox: "gone", Name: "a"}, {Sandbox: "here", Name: "b"}}}
	m := netplugin.NewManager(p, nil)
	live := func(context.Context) (map[string]bool, error) {
		p.attached = append(p.attached, netplugin.Pod{Sandbox: "new", Name: "c"}) // its sandbox came after the list
		return map[string]bool{"here": true}, nil
	}
	require.NoError(t, m.Collect(t.Context(), live))
	require.Equal(t, []string{"down gone"}, p.seen)
	away := errors.New("the engine is away")
	require.ErrorIs(t, m.Collect(t.Context(), func(context.Context) (map[string]bool, error) { return nil, away }), away)
	require.Equal(t, []string{"down gone"}, p.seen, "without a list nobody is gone")
}

func TestErrorsNameThePlugin(t *testing.T) {
	t.Parallel()
	p := &plugin{name: "p", fails: errors.New("broken")}
	m := netplugin.NewManager(p, nil)
	_, err := m.GetPodNetworkStatus(t.Context(), netplugin.Pod{})
	for _, err := range []error{err, m.SetUpPod(t.Context(), netplugin.Pod{}), m.TearDownPod(t.Context(), netplugin.Pod{})} {
		require.EqualError(t, err, "network plugin p: broken")
	}
	require.ErrorIs(t, m.CheckPod(t.Context(), netplugin.Pod{}), netplugin.ErrUnchecked)
	require.NoError(t, m.SetPodCIDR(t.Context(), "10.0.0.0/24"))
	require.Contains(t, p.seen, "pod-cidr-change 10.0.0.0/24")
	require.Nil(t, netplugin.StatusOf(nil))
}
