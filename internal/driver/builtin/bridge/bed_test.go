package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/bridge"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// node is a host's namespace and the plugin that works there.
type node struct {
	testing.TB
	host   *netns.Handle
	data   string // of host-local
	dir    string // of the programs
	reaper *tombstone.Reaper
	plugin *bridge.Plugin
	// refuse, if set, is what the IPAM plugin says to ADD; ipam is asked before.
	refuse error
	mu     sync.Mutex
	asked  []core.Op
}

func newNode(t testing.TB) *node {
	t.Helper()
	dir := drivertest.Programs(t, "main/bridge", "ipam/host-local", "ipam/static")
	n := &node{TB: t, host: netnstest.New(t), data: t.TempDir(), dir: dir}
	n.reaper = tombstone.New(n.host, slog.New(slog.DiscardHandler))
	n.plugin = bridge.New(n.host, n.reaper)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { n.reaper.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	n.ip(n.host, "link", "set", "lo", "up")
	netnstest.Do(t, n.host, func() error { // the bridge's IPv6 addresses need no second to be usable
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/dad_transmits", []byte("0"), 0)
	})
	return n
}

// pod is a namespace with a path, as a runtime makes it.
type pod struct {
	*netns.Handle
	id  core.Netns
	key core.Key
}

func (n *node) pod(container string) *pod {
	n.Helper()
	h := netnstest.New(n)
	id, err := netns.Identify(netnstest.Bind(n, h))
	require.NoError(n, err)
	n.ip(h, "link", "set", "lo", "up")
	return &pod{Handle: h, id: id, key: core.Key{Container: container, IfName: "eth0"}}
}

// attachment is what a runtime keeps of an ADD.
type attachment struct {
	pod  *pod
	conf string
	args string
}

func (n *node) conf(s string) string { return strings.ReplaceAll(s, "DATA", n.data) }

// call is what the hook gives a plugin; the IPAM plugin is the program.
func (n *node) call(a attachment, conf string) driver.PluginCall {
	return driver.PluginCall{
		Conf: json.RawMessage(conf), Key: a.pod.key, Netns: a.pod.id, Args: a.args,
		IPAM: func(_ context.Context, op core.Op) (json.RawMessage, error) {
			n.mu.Lock()
			n.asked = append(n.asked, op)
			n.mu.Unlock()
			var c struct{ IPAM struct{ Type string } }
			if err := json.Unmarshal([]byte(conf), &c); err != nil {
				return nil, err
			}
			out, err := n.exec(c.IPAM.Type, op, a, conf)
			if op == core.Add && n.refuse != nil {
				return nil, n.refuse
			}
			return out, err
		},
	}
}

// add is our ADD.
func (n *node) add(a attachment) (json.RawMessage, error) {
	return n.plugin.Add(n.Context(), n.call(a, n.conf(a.conf)))
}

func (n *node) mustAdd(a attachment) json.RawMessage {
	n.Helper()
	out, err := n.add(a)
	require.NoError(n, err)
	return out
}

func (n *node) del(a attachment, prev json.RawMessage) error {
	return n.plugin.Del(n.Context(), n.call(a, withPrev(n, n.conf(a.conf), prev)))
}

func (n *node) check(a attachment, prev json.RawMessage) error {
	return n.plugin.Check(n.Context(), n.call(a, withPrev(n, n.conf(a.conf), prev)))
}

// program runs upstream's bridge.
func (n *node) program(op core.Op, a attachment, prev json.RawMessage) (json.RawMessage, error) {
	return n.exec("bridge", op, a, withPrev(n, n.conf(a.conf), prev))
}

// exec runs a program of upstream's on the host.
func (n *node) exec(kind string, op core.Op, a attachment, conf string) (json.RawMessage, error) {
	return drivertest.Program{Dir: n.dir, Type: kind, Host: n.host}.Run(op, driver.PluginCall{
		Conf: json.RawMessage(conf), Key: a.pod.key, Netns: a.pod.id, Args: a.args,
	})
}

func withPrev(t testing.TB, conf string, prev json.RawMessage) string {
	t.Helper()
	if len(prev) == 0 {
		return conf
	}
	var doc map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(conf), &doc))
	doc["prevResult"] = prev
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	return string(out)
}

func (n *node) ip(ns *netns.Handle, args ...string) string {
	n.Helper()
	return inside.Run(n, ns, "ip", args...)
}

// links are the names of the host's or a pod's links but lo.
func (n *node) links(ns *netns.Handle) []string {
	n.Helper()
	return inside.Links(n, ns)
}

// bare waits until the host has the bridge and nothing else, and host-local
// holds no address.
func (n *node) bare(bridge ...string) {
	n.Helper()
	require.Eventually(n, func() bool { return fmt.Sprint(n.links(n.host)) == fmt.Sprint(bridge) }, time.Minute, time.Millisecond,
		"links: %v", n.links(n.host))
	require.Empty(n, n.held())
}

// held are the addresses that host-local has given.
func (n *node) held() map[string]string {
	n.Helper()
	return drivertest.Leases(n, n.data)
}

// What differs from run to run: names and MACs by chance, addresses made of
// them, timers.
var (
	chance  = regexp.MustCompile(`veth[0-9a-f]{8}|fltomb[0-9a-f]+|fe80::[0-9a-f:]+|\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)
	timers  = regexp.MustCompile(`"[a-z_]*timer":\s*[0-9.]+,?`)
	sandbox = regexp.MustCompile(`"sandbox":\s*"[^"]*"`)
	bridges = regexp.MustCompile(`"8000\.[0-9a-f:]+"`)
)

// canonical gives what is left to chance names by order of appearance: equal
// things stay equal.
func canonical(text string) string {
	text = sandbox.ReplaceAllString(timers.ReplaceAllString(text, ""), `"sandbox": "POD"`)
	text = bridges.ReplaceAllStringFunc(text, func(s string) string { // ip leaves zeros out
		bytes := strings.Split(strings.Trim(s, `"`)[len("8000."):], ":")
		for i, b := range bytes {
			bytes[i] = fmt.Sprintf("%02s", b)
		}
		return strings.Join(bytes, ":")
	})
	seen := map[string]string{}
	return chance.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case s == "ff:ff:ff:ff:ff:ff", s == "00:00:00:00:00:00", s == "02:00:00:00:00:07":
			return s
		case strings.HasPrefix(s, "fe80"):
			return "fe80::LOCAL"
		case seen[s] == "":
			seen[s] = fmt.Sprintf("%s-%d", map[bool]string{true: "veth", false: "mac"}[strings.HasPrefix(s, "veth")], len(seen))
		}
		return seen[s]
	})
}

// settings are the sysctls that the plugin may touch.
func (n *node) settings(ns *netns.Handle, names []string) string {
	n.Helper()
	var out strings.Builder
	netnstest.Do(n, ns, func() error {
		paths := []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/all/disable_ipv6"}
		for _, name := range append([]string{"lo"}, names...) {
			for _, key := range []string{"accept_ra", "accept_dad", "enhanced_dad", "disable_ipv6", "keep_addr_on_down"} {
				paths = append(paths, "net/ipv6/conf/"+name+"/"+key)
			}
			paths = append(paths, "net/ipv4/conf/"+name+"/arp_notify")
		}
		for _, p := range paths {
			b, err := os.ReadFile("/proc/sys/" + p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "%s = %s", p, b)
		}
		return nil
	})
	return out.String()
}

// state is all of the host's and the pod's network that a plugin can touch.
func (n *node) state(p *pod) string {
	n.Helper()
	var out strings.Builder
	for _, ns := range []*netns.Handle{n.host, p.Handle} {
		require.Eventually(n, func() bool { return !strings.Contains(n.ip(ns, "addr"), "tentative") }, time.Minute, 5*time.Millisecond)
		for _, args := range []string{"-d link", "addr", "-4 route show table all", "-6 route show table all"} {
			raw := n.ip(ns, append([]string{"-j"}, strings.Fields(args)...)...)
			fmt.Fprintf(&out, "%s\n%s\n", args, list(n, raw))
		}
		out.WriteString(n.settings(ns, n.links(ns)))
	}
	fmt.Fprintf(&out, "bridge link\n%s\n", list(n, inside.Run(n, n.host, "bridge", "-j", "-d", "link")))
	return canonical(out.String())
}

// list gives each element of a JSON array in order, chance left out of it: the
// kernel sorts routes by their destinations.
func list(t testing.TB, raw string) string {
	t.Helper()
	if strings.TrimSpace(raw) == "" {
		return ""
	}
	var doc []any
	require.NoError(t, json.Unmarshal([]byte(raw), &doc))
	slices.SortStableFunc(doc, func(a, b any) int { return strings.Compare(plain(t, a), plain(t, b)) })
	out, err := json.MarshalIndent(doc, "", " ")
	require.NoError(t, err)
	return string(out)
}

func plain(t testing.TB, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return chance.ReplaceAllString(string(out), "?")
}

// same compares long texts.
func same(t testing.TB, want, got string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"upstream": want, "ours": got} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if out, err := osexec.Command("diff", "-U4", dir+"/upstream", dir+"/ours").CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}

// sorted is a JSON text with its keys in order.
func sorted(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var doc any
	require.NoError(t, json.Unmarshal(raw, &doc))
	out, err := json.MarshalIndent(doc, "", " ")
	require.NoError(t, err)
	return string(out)
}

var errRefused = errors.New("refused by the test")
