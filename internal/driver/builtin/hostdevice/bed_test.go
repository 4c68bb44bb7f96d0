package hostdevice

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// node is a host with a device d0, whose far end d1 is elsewhere.
type node struct {
	testing.TB
	host *netns.Handle
	data string // host-local's
	dir  string // of the programs
	p    *Plugin
	ipam map[string]driver.Plugin
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{
		TB: t, host: netnstest.New(t), data: t.TempDir(),
		dir:  drivertest.Programs(t, "main/host-device", "ipam/host-local", "ipam/static"),
		ipam: map[string]driver.Plugin{hostlocal.Name: hostlocal.New(), static.Name: static.Plugin{}},
	}
	n.p = New(n.host, t.TempDir())
	far := netnstest.New(t)
	n.ip(n.host, "link", "add", "d0", "address", "02:00:00:00:00:d0", "mtu", "1450", "type", "veth", "peer", "name", "d1", "netns", netnstest.Path(far))
	n.ip(far, "link", "set", "d1", "up")
	return n
}

// pod is a namespace that a path leads to, as a runtime makes it.
type pod struct {
	ns  *netns.Handle
	id  core.Netns
	key core.Key
}

func (n *node) pod(container string) pod {
	n.Helper()
	ns := netnstest.New(n)
	netnstest.Do(n, ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o600) })
	id, err := netns.Identify(netnstest.Bind(n, ns))
	require.NoError(n, err)
	return pod{ns, id, core.Key{Container: container, IfName: "net1"}}
}

func config(version, more string) string {
	return `{"cniVersion":"` + version + `","name":"net","type":"host-device",` + more + `}`
}

// call is an ADD, or with prev another call; DATA stands for host-local's folder.
func (n *node) call(p pod, conf string, prev json.RawMessage) driver.PluginCall {
	n.Helper()
	conf = strings.ReplaceAll(conf, "DATA", n.data)
	if len(prev) > 0 {
		conf = conf[:strings.LastIndexByte(conf, '}')] + `,"prevResult":` + string(prev) + `}`
	}
	c := driver.PluginCall{Conf: json.RawMessage(conf), Key: p.key, Netns: p.id}
	c.IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error) {
		var of struct{ IPAM struct{ Type string } }
		require.NoError(n, json.Unmarshal(c.Conf, &of))
		plugin := n.ipam[of.IPAM.Type]
		if plugin == nil {
			return nil, core.Errorf(core.CodeConfig, "no plugin %q", of.IPAM.Type)
		}
		return driver.Perform(ctx, plugin, op, c)
	}
	return c
}

func (n *node) program(op core.Op, c driver.PluginCall) (json.RawMessage, error) {
	return drivertest.Program{Dir: n.dir, Type: Name, Host: n.host}.Run(op, c)
}

func (n *node) ip(ns *netns.Handle, args ...string) string {
	n.Helper()
	return inside.Run(n, ns, "ip", args...)
}

// chance is what differs from run to run.
var chance = regexp.MustCompile(`fe80::[0-9a-f:]+|"sandbox": *"[^"]*"|"(ifindex|link_index|link_netnsid|[a-z_]*timer)": *[0-9.]+`)

func canonical(text string) string {
	return chance.ReplaceAllStringFunc(text, func(s string) string { return s[:4] + "…" })
}

// state is all that a plugin can touch in a namespace.
func (n *node) state(ns *netns.Handle) string {
	n.Helper()
	require.Eventually(n, func() bool { // the kernel tells carrier a moment later, and then gives IPv6's own address
		now := n.ip(ns, "addr")
		return !strings.Contains(now, "tentative") && !strings.Contains(now, "NO-CARRIER") && strings.Contains(now, "UP") == strings.Contains(now, "fe80")
	}, time.Minute, 5*time.Millisecond)
	var out strings.Builder
	for _, args := range []string{"-d link", "addr", "-4 route show table all", "-6 route show table all"} {
		var list []any
		require.NoError(n, json.Unmarshal([]byte(n.ip(ns, append([]string{"-j"}, strings.Fields(args)...)...)), &list))
		lines := []string{}
		for _, e := range list {
			raw, err := json.Marshal(e)
			require.NoError(n, err)
			lines = append(lines, canonical(string(raw)))
		}
		slices.Sort(lines)
		fmt.Fprintf(&out, "%s:\n%s\n", args, strings.Join(lines, "\n"))
	}
	return out.String()
}

// requireBack: the device is on the machine as it was, nothing is held, and nobody has a mark.
func (n *node) requireBack(before string) {
	n.Helper()
	require.Equal(n, before, n.state(n.host))
	require.Empty(n, drivertest.Leases(n, n.data))
	left, err := n.p.marks("*")
	require.NoError(n, err)
	require.Empty(n, left)
}

func sorted(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var doc map[string]any
	require.NoError(t, json.Unmarshal(raw, &doc))
	if dns, ok := doc["dns"].(map[string]any); ok && len(dns) == 0 {
		delete(doc, "dns")
	}
	out, err := json.MarshalIndent(doc, "", " ")
	require.NoError(t, err)
	return canonical(string(out))
}
