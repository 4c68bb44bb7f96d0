package exec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/bridge"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	mv "github.com/fairlead/fairlead/internal/driver/builtin/macvlan"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// inHost runs a driver as an agent does whose own namespace is ns: plugins are
// started there.
type inHost struct {
	*exec.Driver
	ns *netns.Handle
}

func (h inHost) Attach(ctx context.Context, r driver.Run, s core.Spec) (l core.Link, err error) {
	return l, h.ns.Do(func() error { l, err = h.Driver.Attach(ctx, r, s); return err })
}

func (h inHost) Check(ctx context.Context, r driver.Run, s core.Spec, l core.Link) error {
	return h.ns.Do(func() error { return h.Driver.Check(ctx, r, s, l) })
}

func (h inHost) Detach(ctx context.Context, r driver.Run, s core.Spec) error {
	return h.ns.Do(func() error { return h.Driver.Detach(ctx, r, s) })
}

func (h inHost) GC(ctx context.Context, r driver.Run, call core.Exec, live []core.Key) error {
	return h.ns.Do(func() error { return h.Driver.GC(ctx, r, call, live) })
}

func (h inHost) Status(ctx context.Context, r driver.Run, call core.Exec) error {
	return h.ns.Do(func() error { return h.Driver.Status(ctx, r, call) })
}

// host is a machine's own namespace with a link m0 that macvlan can sit on, and
// the driver that runs every plugin as a program.
func host(t testing.TB) (*netns.Handle, inHost) {
	ns := netnstest.New(t)
	ip(t, ns, "link", "add", "m0", "type", "veth", "peer", "name", "m1")
	ip(t, ns, "link", "set", "m0", "up")
	ip(t, ns, "link", "set", "m1", "up")
	return ns, inHost{exec.New(nil), ns}
}

// agentHost is host with the plugins that the agent carries out itself.
func agentHost(t testing.TB) (*netns.Handle, inHost) {
	ns, d := host(t)
	reaper := tombstone.New(ns, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { reaper.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	d.Driver = exec.New(map[string]driver.Plugin{
		bridge.Type: bridge.New(ns, reaper), mv.Name: mv.New(ns, reaper, nil), hostlocal.Name: hostlocal.New(), static.Name: static.Plugin{},
	})
	return ns, d
}

// bothWays runs a test with programs and without.
func bothWays(t *testing.T, test func(t *testing.T, host func(testing.TB) (*netns.Handle, inHost))) {
	t.Run("programs", func(t *testing.T) { test(t, host) })
	t.Run("inside", func(t *testing.T) { test(t, agentHost) })
}

func macvlan(n int, version string) string {
	return fmt.Sprintf(`{"cniVersion":"%s","name":"mv%d","plugins":[{"type":"macvlan","master":"m0","capabilities":{"mac":true},
	 "ipam":{"type":"static","addresses":[{"address":"10.1.%d.5/24","gateway":"10.1.%d.1"},{"address":"fd00:%d::5/64"}],
	 "routes":[{"dst":"10.9.%d.0/24"}]}}]}`, version, n, n, n, n, n)
}

func TestConformance(t *testing.T) { bothWays(t, conformance) }

func conformance(t *testing.T, host func(testing.TB) (*netns.Handle, inHost)) {
	dir := upstreamDir(t)
	drivertest.Run(t, func(t *testing.T) *drivertest.Machine {
		ns, d := host(t)
		return &drivertest.Machine{
			Driver: d,
			Spec: func(n int, pod core.Netns) core.Spec {
				x := call(t, macvlan(n, "1.1.0"), 0, dir)
				x.Conf = bytes.ReplaceAll(x.Conf, []byte("00:07"), []byte(fmt.Sprintf("00:%02d", n)))
				s := spec(pod, x)
				s.Key = core.Key{Container: fmt.Sprintf("c%d", n), IfName: "eth0"}
				return s
			},
			Inventory: func() []string { return linkNames(t, ns) },
			Bad: func(s core.Spec) core.Spec {
				s.ChangeExec().Type = "absent"
				return s
			},
		}
	})
}

func TestEveryVersionOfAPlugin(t *testing.T) { bothWays(t, everyVersionOfAPlugin) }

func everyVersionOfAPlugin(t *testing.T, host func(testing.TB) (*netns.Handle, inHost)) {
	dir := upstreamDir(t)
	for _, v := range cniconf.Supported() {
		_, d := host(t)
		ns, id := pod(t)
		s := spec(id, call(t, macvlan(1, v), 0, dir))
		l, err := d.Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err, v)
		require.Equal(t, "02:00:00:00:00:07", l.MAC.String(), v)
		require.Equal(t, 1500, l.MTU, v)
		require.Len(t, l.Addrs, 2, v)
		out, err := cniconf.Result([]core.Link{l}, id.Path, "0.3.1")
		require.NoError(t, err)
		require.Contains(t, string(out), "10.1.1.5/24")
		require.NoError(t, d.Check(t.Context(), driver.Run{}, s, l), v)
		require.NoError(t, d.Detach(t.Context(), driver.Run{}, s), v)
		require.Eventually(t, func() bool { return slices.Equal([]string{"lo"}, linkNames(t, ns)) }, time.Minute, 5*time.Millisecond, v)
	}
}

// bridgeNet is a chain whose second plugin changes what the first one made.
func bridgeNet(dataDir string) string {
	return `{"cniVersion":"1.0.0","name":"br","plugins":[
	 {"type":"bridge","bridge":"cni7","isDefaultGateway":true,
	  "ipam":{"type":"host-local","dataDir":"` + dataDir + `","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}},
	 {"type":"tuning","mtu":1400,"mac":"02:00:00:00:00:99"}]}`
}

// attachChain attaches both steps as the engine does and gives the sealed specs.
func attachChain(t *testing.T, d driver.Driver, id core.Netns, conf, dir string) ([]core.Spec, []core.Link) {
	t.Helper()
	specs := []core.Spec{spec(id, call(t, conf, 0, dir)), spec(id, call(t, conf, 1, dir))}
	first, err := d.Attach(t.Context(), driver.Run{}, specs[0])
	require.NoError(t, err)
	specs[1].Exec.Prev = first.CNIResult
	second, err := d.Attach(t.Context(), driver.Run{}, specs[1])
	require.NoError(t, err)
	first.MTU = second.MTU // as of the record's final links
	for i := range specs {
		specs[i].Exec.Prev = second.CNIResult
	}
	return specs, []core.Link{first, second}
}

func checkBoth(t *testing.T, d driver.Driver, specs []core.Spec, links []core.Link) error {
	t.Helper()
	return errors.Join(d.Check(t.Context(), driver.Run{}, specs[0], links[0]), d.Check(t.Context(), driver.Run{}, specs[1], links[1]))
}

func TestChainIsCheckedAgainstItsFinalResult(t *testing.T) {
	bothWays(t, chainIsCheckedAgainstItsFinalResult)
}

func chainIsCheckedAgainstItsFinalResult(t *testing.T, host func(testing.TB) (*netns.Handle, inHost)) {
	hostNS, d := host(t)
	dataDir := t.TempDir()
	conf, dir := bridgeNet(dataDir), upstreamDir(t)
	for _, tamper := range []struct {
		name string
		args []string
	}{
		{"", nil},
		{"address", []string{"addr", "del", "10.88.0.2/24", "dev", "net1"}},
		{"address6", []string{"addr", "del", "fd00:88::2/64", "dev", "net1"}},
		{"length", []string{"addr", "change", "10.88.0.2/25", "dev", "net1"}},
		{"down", []string{"link", "set", "net1", "down"}},
		{"gone", []string{"link", "del", "net1"}},
		{"renamed", []string{"link", "set", "net1", "down", "name", "other"}},
		{"MAC", []string{"link", "set", "net1", "address", "02:00:00:00:00:55"}},
		{"MTU", []string{"link", "set", "net1", "mtu", "1300"}},
		{"default route", []string{"route", "del", "default"}},
		{"default route via another", []string{"route", "replace", "default", "via", "10.88.0.77"}},
		{"default route 6", []string{"-6", "route", "del", "default"}},
	} {
		ns, id := pod(t)
		specs, links := attachChain(t, d, id, conf, dir)
		require.NoError(t, checkBoth(t, d, specs, links), tamper.name)
		if tamper.args != nil {
			if tamper.name == "length" {
				ip(t, ns, "addr", "del", "10.88.0.2/24", "dev", "net1")
				tamper.args[1] = "add"
			}
			ip(t, ns, tamper.args...)
			require.ErrorIs(t, checkBoth(t, d, specs, links), core.ErrDrift, tamper.name)
		}
		if tamper.name == "renamed" { // no plugin finds it now; the kernel ends it with the pod
			ip(t, ns, "link", "del", "other")
		}
		require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[1]), tamper.name)
		require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[0]), tamper.name)
		require.NotContains(t, linkNames(t, ns), "net1")
		require.Empty(t, leases(t, dataDir))
		clearCounters(t, dataDir)
	}
	require.Eventually(t, func() bool { return !strings.Contains(fmt.Sprint(linkNames(t, hostNS)), "fltomb") }, time.Minute, time.Millisecond)
	require.ElementsMatch(t, []string{"lo", "m0", "m1", "cni7"}, linkNames(t, hostNS), "no host end is left")
}

// leases are the addresses that host-local has given out.
func leases(t *testing.T, dataDir string) []string { return leasesOf(t, filepath.Join(dataDir, "br")) }

func leasesOf(t *testing.T, folder string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != "lock" && filepath.Ext(e.Name()) != ".0" && filepath.Ext(e.Name()) != ".1" {
			out = append(out, e.Name())
		}
	}
	return out
}

// clearCounters lets host-local begin with its first address again.
func clearCounters(t *testing.T, dataDir string) { require.NoError(t, os.RemoveAll(dataDir)) }

// A `default-route` step moves the default route after the chain; with the
// result that cniconf settles, plugin and driver still find all in order.
func TestCheckKnowsAMovedDefaultRoute(t *testing.T) {
	_, d := host(t)
	ns, id := pod(t)
	specs, links := attachChain(t, d, id, bridgeNet(t.TempDir()), upstreamDir(t))
	for _, moved := range []struct {
		link string
		gw   netip.Addr
		line []string
	}{
		{"net1", netip.MustParseAddr("10.88.0.77"), []string{"route", "replace", "default", "via", "10.88.0.77"}},
		{"eth9", netip.MustParseAddr("192.0.2.1"), []string{"route", "del", "default"}},
	} {
		ip(t, ns, moved.line...)
		require.ErrorIs(t, checkBoth(t, d, specs, links), core.ErrDrift)
		settled, err := cniconf.Result(append(links, core.Link{
			IfName: moved.link, PodSide: core.PodSide{Routes: []core.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: moved.gw}}},
		}), id.Path, "1.0.0")
		require.NoError(t, err)
		for i := range specs {
			specs[i].Exec.Prev = settled
		}
		require.NoError(t, checkBoth(t, d, specs, links))
	}
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[1]))
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[0]))
}

// A namespace that died with its pod: everything outside is freed.
func TestDetachWithoutNamespaceFreesTheLease(t *testing.T) {
	bothWays(t, detachWithoutNamespaceFreesTheLease)
}

func detachWithoutNamespaceFreesTheLease(t *testing.T, host func(testing.TB) (*netns.Handle, inHost)) {
	_, d := host(t)
	dataDir := t.TempDir()
	ns, id := pod(t)
	specs, _ := attachChain(t, d, id, bridgeNet(dataDir), upstreamDir(t))
	require.NotEmpty(t, leases(t, dataDir))
	netnstest.Unbind(t, id.Path)
	require.NoError(t, ns.Close())
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[1]))
	require.NoError(t, d.Detach(t.Context(), driver.Run{}, specs[0]))
	require.Empty(t, leases(t, dataDir))
}

// The error of an IPAM plugin two processes away keeps its code and words.
func TestPluginsErrorIsPassedOn(t *testing.T) {
	_, d := host(t)
	ns, id := pod(t)
	conf := `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"macvlan","master":"nope","ipam":{"type":"static"}}]}`
	_, err := d.Attach(t.Context(), driver.Run{}, spec(id, call(t, conf, 0, upstreamDir(t))))
	require.ErrorContains(t, err, "Link not found")
	require.ErrorContains(t, err, `plugin "macvlan" (ADD, network "n")`)
	require.Equal(t, []string{"lo"}, linkNames(t, ns))

	conf = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"macvlan","master":"m0","ipam":{"type":"missing-ipam"}}]}`
	_, err = d.Attach(t.Context(), driver.Run{}, spec(id, call(t, conf, 0, upstreamDir(t))))
	require.ErrorContains(t, err, "missing-ipam")
}

func TestGCAndStatusReachThePlugin(t *testing.T) {
	out := filepath.Join(t.TempDir(), "stdin")
	dir := script(t, "p", `echo $CNI_COMMAND; cat >`+out)
	x := call(t, `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"p"}]}`, 0, dir)
	require.NoError(t, exec.New(nil).GC(t.Context(), driver.Run{}, *x, []core.Key{{Container: "c1", IfName: "net1"}}))
	stdin, err := os.ReadFile(out)
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.1.0","name":"n","type":"p",
	 "cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"}],
	 "cni.dev/attachments":[{"containerID":"c1","ifname":"net1"}]}`, string(stdin))
	require.NoError(t, exec.New(nil).Status(t.Context(), driver.Run{}, *x))

	x.Path = []string{script(t, "p", `echo '{"code":50,"msg":"no '$CNI_COMMAND'"}'; exit 1`)}
	require.Equal(t, core.CodeNotReady, core.CodeOf(exec.New(nil).Status(t.Context(), driver.Run{}, *x)))
	require.ErrorContains(t, exec.New(nil).GC(t.Context(), driver.Run{}, *x, nil), "no GC")

	old := *x
	old.CNIVersion = "1.0.0"
	require.NoError(t, exec.New(nil).GC(t.Context(), driver.Run{}, old, nil), "both came with 1.1.0")
	require.NoError(t, exec.New(nil).Status(t.Context(), driver.Run{}, old))
	x.DisableGC = true
	require.NoError(t, exec.New(nil).GC(t.Context(), driver.Run{}, *x, nil))

	// the upstream plugins of 1.9.1 take the call and have nothing to free
	shipped := call(t, `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"macvlan","master":"m0","ipam":{"type":"static"}}]}`, 0, upstreamDir(t))
	require.NoError(t, exec.New(nil).GC(t.Context(), driver.Run{}, *shipped, nil))
}
