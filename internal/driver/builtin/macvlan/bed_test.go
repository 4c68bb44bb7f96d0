package macvlan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	"github.com/fairlead/fairlead/internal/driver/builtin/macvlan"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/driver/builtin/vlanparent"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// node is a host with a device m0 that its default route goes through, and a
// folder for host-local.
type node struct {
	testing.TB
	host  *netns.Handle
	data  string
	dir   string // of the programs
	kind  string
	p     *macvlan.Plugin
	ipam  map[string]driver.Plugin
	vlans *vlanparent.Parents
	marks string // of vlans
	dad   bool   // pods prove their addresses unique, which takes a second or two
}

func newNode(t testing.TB, kind string) *node {
	t.Helper()
	n := &node{
		TB: t, host: netnstest.New(t), data: t.TempDir(), kind: kind,
		dir:  drivertest.Programs(t, "main/macvlan", "ipam/host-local", "ipam/static"),
		ipam: map[string]driver.Plugin{hostlocal.Name: hostlocal.New(), static.Name: static.Plugin{}},
	}
	reaper := tombstone.New(n.host, slog.New(slog.DiscardHandler))
	n.marks = t.TempDir()
	n.vlans = vlanparent.New(n.marks)
	n.p = macvlan.New(n.host, reaper, n.vlans)
	switch kind {
	case macvlan.NameIpvlan:
		drivertest.Programs(t, "main/ipvlan")
		n.p = macvlan.NewIpvlan(n.host, reaper, n.vlans)
	case macvlan.NameVLAN:
		drivertest.Programs(t, "main/vlan")
		n.p = macvlan.NewVLAN(n.host, reaper)
	}
	n.ip(n.host, "link", "add", "m0", "type", "veth", "peer", "name", "m1")
	n.ip(n.host, "link", "set", "m1", "up")
	n.ip(n.host, "link", "set", "m0", "up")
	n.ip(n.host, "addr", "add", "192.0.2.1/24", "dev", "m0")
	n.ip(n.host, "route", "add", "default", "via", "192.0.2.254")
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
	if !n.dad {
		netnstest.Do(n, ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o600) })
	}
	id, err := netns.Identify(netnstest.Bind(n, ns))
	require.NoError(n, err)
	return pod{ns, id, core.Key{Container: container, IfName: "net1"}}
}

// call is an ADD, or with prev another call; DATA stands for host-local's
// folder. The IPAM plugin is ours.
func (n *node) call(p pod, conf, args string, prev json.RawMessage) driver.PluginCall {
	n.Helper()
	conf = strings.ReplaceAll(conf, "DATA", n.data)
	if len(prev) > 0 {
		conf = conf[:strings.LastIndexByte(conf, '}')] + `,"prevResult":` + string(prev) + `}`
	}
	c := driver.PluginCall{Conf: json.RawMessage(conf), Key: p.key, Netns: p.id, Args: args}
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

// program runs upstream's, whose IPAM plugin is a program too.
func (n *node) program(op core.Op, c driver.PluginCall) (json.RawMessage, error) {
	return drivertest.Program{Dir: n.dir, Type: n.kind, Host: n.host}.Run(op, c)
}

func (n *node) ip(ns *netns.Handle, args ...string) string {
	n.Helper()
	return inside.Run(n, ns, "ip", args...)
}

// links are the names of a namespace's links but lo.
func (n *node) links(ns *netns.Handle) []string {
	n.Helper()
	return inside.Links(n, ns)
}

// held are the files of host-local but its counters, with content.
func (n *node) held() map[string]string {
	n.Helper()
	return drivertest.Leases(n, n.data)
}

// requireBare: nothing of the plugin is left.
func (n *node) requireBare(p pod) {
	n.Helper()
	require.Eventually(n, func() bool { return len(n.links(p.ns)) == 0 }, time.Minute, 5*time.Millisecond, "links of the pod")
	require.Empty(n, n.held())
	require.ElementsMatch(n, []string{"m0", "m1"}, n.links(n.host))
}

// chance is what differs from run to run.
var chance = regexp.MustCompile(`fe80::[0-9a-f:]+|"(\w\w:){5}\w\w"|"sandbox": *"[^"]*"|"(ifindex|link_index|link_netnsid|[a-z_]*timer)": *[0-9.]+`)

func canonical(text string) string {
	return chance.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case s == `"02:00:00:00:00:07"`:
			return s
		case strings.HasPrefix(s, `"sandbox`):
			return `"sandbox":"POD"`
		}
		return `"ANY"`
	})
}

// state is all that a plugin can touch in the pod.
func (n *node) state(p pod) string {
	n.Helper()
	require.Eventually(n, func() bool {
		unsettled := n.kind == macvlan.NameVLAN && strings.Contains(n.ip(p.ns, "link"), "state UNKNOWN")
		return !unsettled && !strings.Contains(n.ip(p.ns, "addr"), "tentative")
	}, time.Minute, 5*time.Millisecond)
	var out strings.Builder
	for _, args := range []string{"-d link", "addr", "-4 route show table all", "-6 route show table all"} {
		var list []any
		require.NoError(n, json.Unmarshal([]byte(n.ip(p.ns, append([]string{"-j"}, strings.Fields(args)...)...)), &list))
		lines := []string{}
		for _, e := range list {
			raw, err := json.Marshal(e)
			require.NoError(n, err)
			lines = append(lines, canonical(string(raw)))
		}
		slices.Sort(lines)
		fmt.Fprintf(&out, "%s:\n%s\n", args, strings.Join(lines, "\n"))
	}
	netnstest.Do(n, p.ns, func() error {
		for _, name := range append([]string{"lo", "all", "default"}, n.names(p)...) {
			for _, key := range []string{"4/conf/%s/arp_notify", "6/conf/%s/ndisc_notify", "6/conf/%s/disable_ipv6", "6/conf/%s/keep_addr_on_down", "6/conf/%s/accept_ra"} {
				raw, err := os.ReadFile("/proc/sys/net/ipv" + fmt.Sprintf(key, name))
				if err != nil {
					return err
				}
				fmt.Fprintf(&out, key+" = %s", name, raw)
			}
		}
		return nil
	})
	return out.String()
}

// names are those of the links that may be there.
func (n *node) names(p pod) []string { return []string{p.key.IfName} }

// sorted is a JSON text with keys in order, without what an empty result may
// have or not.
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

func ping(to string) error {
	out, err := osexec.Command("ping", "-c1", "-w30", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ping: %w: %s", err, out)
	}
	return nil
}

// noMarks: no VLAN is counted for a pod.
func (n *node) noMarks() {
	n.Helper()
	left, err := os.ReadDir(n.marks)
	require.NoError(n, err)
	require.Empty(n, left)
}
