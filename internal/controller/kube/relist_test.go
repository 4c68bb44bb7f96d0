package kube_test

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/object"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	"github.com/fairlead/fairlead/internal/testbed/kube/relay"
)

// told are the objects of which a controller was told.
type told struct {
	mu  sync.Mutex
	all map[object.Key]int
}

func (d *told) changed(k object.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[k]++
}

// of is how often it was told of an object by now.
func (d *told) of(k object.Key) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[k]
}

// TestRelistAfter410: a controller whose watches were cut off for so long that the server forgot
// where they stood (410) reads the objects anew, and is told of what came, changed and went
// meanwhile.
func TestRelistAfter410(t *testing.T) {
	t.Parallel()
	c := kubebed.Start(t, kubebed.Options{})
	kinds.Install(t, c)
	const ns = "default"
	as := c.Admin()
	as.UserAgent = agent
	at, err := url.Parse(as.Host)
	require.NoError(t, err)
	open := func(addr string) (string, *relay.Relay) {
		t.Helper()
		l, err := net.Listen("tcp4", addr)
		require.NoError(t, err)
		return l.Addr().String(), relay.New(l, func(net.Conn) (net.Conn, error) { return net.Dial("tcp4", at.Host) })
	}
	addr, gate := open("127.0.0.1:0")
	as.Host = "https://" + addr
	apply := func(text, name, nic string) {
		t.Helper()
		c.Apply(strings.NewReplacer("NAME", name, "NIC", nic, "NS", ns).Replace(text))
	}
	const network = "{apiVersion: kubeovn.io/v1, kind: ProviderNetwork, metadata: {name: NAME}, spec: {defaultInterface: NIC}}"
	for _, name := range []string{"goes", "stays"} {
		apply(podYAML, name, "")
		apply(network, name, "eth1")
	}

	objects, err := kube.New(as, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { objects.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	heard, world := &told{all: map[object.Key]int{}}, objects.World()
	require.NoError(t, world.Follow(ctx, heard.changed))
	pod := func(name string) object.Key { return object.Key{Kind: object.KindPod, Namespace: ns, Name: name} }
	provider := func(name string) object.Key { return object.Key{Kind: object.KindProvider, Name: name} }
	before := map[object.Key]int{}
	for _, name := range []string{"goes", "stays"} {
		for _, k := range []object.Key{pod(name), provider(name)} {
			before[k] = heard.of(k)
		}
	}

	gate.Close()
	c.Kubectl("delete", "pod", "goes", "--force", "--grace-period=0")
	c.Kubectl("delete", "provider-network", "goes")
	c.Kubectl("annotate", "pod", "stays", "ovn.kubernetes.io/ip_address=10.30.0.3")
	apply(network, "stays", "eth2")
	apply(podYAML, "comes", "")
	apply(network, "comes", "eth1")
	c.Restart() // its memory of changes begins now
	since := c.Mark()
	_, gate = open(addr)
	t.Cleanup(func() { gate.Close() })

	changed := func(k object.Key) bool { return heard.of(k) > before[k] }
	for _, name := range []string{"goes", "stays", "comes"} {
		require.Eventually(t, func() bool { return changed(pod(name)) && changed(provider(name)) }, patience, tick, "told of %s", name)
	}
	p, _ := world.Pods.Get(ns, "stays")
	require.Equal(t, "10.30.0.3", p.Annotations["ovn.kubernetes.io/ip_address"])
	n, _ := world.Providers.Get("", "stays")
	require.Equal(t, "eth2", n.Spec.DefaultInterface)
	for _, resource := range []string{"pods", "provider-networks"} {
		again := false
		for _, r := range c.Requests(kubebed.Filter{UserAgent: agent, Resource: resource, Since: since}) {
			again = again || r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true")
		}
		require.True(t, again, "the watch of %s went on: the test made no 410", resource)
	}
	require.NoError(t, objects.Listed())
}
