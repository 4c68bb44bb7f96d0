package uplink_test

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// bed is a node whose NIC eth1 leads to a gateway and what lies behind it.
type bed struct {
	t     *testing.T
	sw    *ovstest.Switch
	world *netns.Handle
	ovs   *ovs.Client
	dir   string // of the journal
	run   string // as /run of a machine with both managers
	j     *journal.Journal
	node  *uplink.Transfers
	boot  string
	kind  bedOf
	// through stands between the node and its switch; nil: nothing does.
	through uplink.Switch
	// record stands between the node and its journal, likewise.
	record func(uplink.Journal) uplink.Journal
}

// bedOf is of what a bed is made.
type bedOf struct {
	nic      string     // "" = eth1
	wire     func(*bed) // makes it, and the way to the gateway
	address  func(*bed) // gives it what it has
	datapath string     // "" = the machine's own
}

func newBed(t *testing.T) *bed { return newBedOf(t, bedOf{wire: (*bed).wire, address: (*bed).address}) }

func newBedOf(t *testing.T, kind bedOf) *bed {
	kind.nic, kind.datapath = cmp.Or(kind.nic, "eth1"), cmp.Or(kind.datapath, ovstest.Datapath(t))
	b := &bed{t: t, sw: ovstest.New(t), world: netnstest.New(t), dir: t.TempDir(), run: t.TempDir(), boot: "one", kind: kind}
	for _, d := range []string{"systemd/network", "NetworkManager"} {
		require.NoError(t, os.MkdirAll(filepath.Join(b.run, d), 0o755))
	}
	b.sw.In("ip", "link", "set", "lo", "up")
	kind.wire(b)
	kind.address(b)
	ctx, stop := context.WithCancel(context.Background())
	b.ovs = ovs.New(ovs.Config{Endpoint: b.sw.Endpoint(), Bridge: "br-int", Datapath: kind.datapath, Log: slog.New(slog.DiscardHandler)})
	done := make(chan struct{})
	go func() { b.ovs.Run(ctx); close(done) }()
	t.Cleanup(func() {
		stop()
		<-done
		if b.j != nil {
			_ = b.j.Close()
		}
	})
	b.until("the switch's database is known", func() bool { return b.ovs.Connected() == nil })
	require.NoError(t, b.ovs.EnsureBridge(t.Context()))
	b.proved()
	b.start()
	return b
}

// proved waits for the NIC's link-local address: the kernel gives it one some time after
// there is a carrier, and proves it then. A NIC without IPv6 has none.
func (b *bed) proved() {
	b.t.Helper()
	b.until("the NIC's link-local address is proved", func() bool {
		has := b.sw.In("ip", "addr", "show", "dev", b.kind.nic)
		without := strings.TrimSpace(b.sw.In("sysctl", "-n", "net.ipv6.conf."+b.kind.nic+".disable_ipv6")) == "1"
		return (without || strings.Contains(has, "inet6 fe80:")) && !strings.Contains(has, "tentative")
	})
}

// wire makes the NIC and the gateway at its far end.
func (b *bed) wire() {
	b.t.Helper()
	b.sw.In("ip", "link", "add", "eth1", "address", "02:00:00:00:01:01", "type", "veth", "peer", "name", "far", "netns", b.world.ProcPath())
	b.sw.In("ethtool", "-K", "eth1", "tx", "off")
	b.out("ethtool", "-K", "far", "tx", "off")
	b.out("ip", "link", "set", "far", "up")
	b.out("ip", "addr", "add", "192.0.2.254/24", "dev", "far")
	b.out("ip", "addr", "add", "2001:db8::fe/64", "dev", "far", "nodad")
	b.out("ip", "addr", "replace", "198.51.100.1/32", "dev", "lo")
	b.out("ip", "link", "set", "lo", "up")
}

// address gives the NIC what an administrator's program gives it.
func (b *bed) address() {
	b.t.Helper()
	b.sw.In("ip", "link", "set", "eth1", "up")
	for _, a := range []string{
		"addr add 192.0.2.1/24 brd 192.0.2.255 dev eth1", "addr add 192.0.2.2/24 dev eth1", "addr add 203.0.113.1 peer 203.0.113.9/32 dev eth1",
		"addr add 2001:db8::1/64 dev eth1 nodad", "addr add 2001:db8::2/64 dev eth1 nodad noprefixroute",
		"route add default via 192.0.2.254 dev eth1 proto static", "route add default via 2001:db8::fe dev eth1 proto static metric 5",
		"route add 10.1.0.0/16 via 192.0.2.254 dev eth1 table 100 proto bird", "route add 10.2.0.0/16 nexthop via 192.0.2.254 dev eth1 weight 3 nexthop via 192.0.2.253 dev eth1",
		"route add 10.3.0.0/16 dev eth1 scope link metric 9 mtu 1400", "rule add iif eth1 lookup 100 priority 77",
		"neigh add 192.0.2.253 lladdr 02:00:00:00:09:09 dev eth1 nud permanent",
	} {
		b.sw.In("ip", strings.Fields(a)...)
	}
}

// start is a new process of the agent: it knows the journal alone.
func (b *bed) start() {
	b.t.Helper()
	if b.j != nil {
		require.NoError(b.t, b.j.Close())
	}
	var err error
	b.j, err = journal.Open(b.dir, journal.Options{})
	require.NoError(b.t, err)
	sw := uplink.Switch(b.ovs)
	if b.through != nil {
		sw = b.through
	}
	j := uplink.Journal(b.j)
	if b.record != nil {
		j = b.record(j)
	}
	b.node = uplink.New(uplink.Config{
		Switch: sw, Journal: j, Host: b.sw.NS, Node: "node-1", BootID: b.boot, Run: b.run, Userspace: b.kind.datapath == ovstest.Userspace,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
}

// file is one below the machine's /run.
func (b *bed) file(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.run, name))
	require.NoError(b.t, err)
	return string(text)
}

func (b *bed) out(name string, args ...string) string {
	b.t.Helper()
	out, err := ovstest.Run(b.world, name, args...)
	require.NoError(b.t, err, "%s %v: %s", name, args, out)
	return out
}

func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	require.Eventually(b.t, ok, 2*time.Minute, 20*time.Millisecond, what)
}

// has is all that a link has, in iproute2's words, with the link's name as "NIC".
func (b *bed) has(link string) string {
	b.t.Helper()
	var all []string
	for _, q := range []string{"-o addr show dev " + link, "route show table all dev " + link, "-6 route show table all dev " + link, "rule", "neigh show nud permanent dev " + link} {
		for line := range strings.Lines(b.sw.In("ip", strings.Fields(q)...)) {
			line = strings.TrimSpace(regexp.MustCompile(`^\d+: `).ReplaceAllString(line, ""))
			all = append(all, strings.Join(strings.Fields(regexp.MustCompile(`\b`+link+`\b`).ReplaceAllString(line, "NIC")), " "))
		}
	}
	slices.Sort(all) // the kernel tells routes of one metric, and addresses of IPv6, by when they came
	return strings.Join(all, "\n")
}

// mac is a link's hardware address.
func (b *bed) mac(link string) string {
	b.t.Helper()
	return strings.Fields(strings.SplitAfter(b.sw.In("ip", "link", "show", link), "link/ether ")[1])[0]
}

// ping asks the node from the world each 10 ms, or, with from, the world from the node.
type ping struct {
	t    *testing.T
	cmd  *exec.Cmd
	text *strings.Builder
}

func (b *bed) ping(ns *netns.Handle, addr string, more ...string) *ping {
	b.t.Helper()
	p := &ping{b.t, exec.Command("ping", append([]string{"-n", "-i", "0.01", addr}, more...)...), &strings.Builder{}}
	p.cmd.Stdout, p.cmd.Stderr = p.text, p.text
	require.NoError(b.t, ns.Do(p.cmd.Start))
	b.t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() }) // of a test that failed
	return p
}

var seqs = regexp.MustCompile(`icmp_seq=(\d+) ttl=.*ms$`)

// lost ends it and is how many were answered, and how many before the last of these were not.
func (p *ping) lost() (answered, lost int) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	_ = p.cmd.Wait()
	last := 0
	for line := range strings.Lines(p.text.String()) {
		if m := seqs.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			seq, _ := strconv.Atoi(m[1])
			answered, last = answered+1, max(last, seq)
		}
	}
	return answered, last - answered
}

// none ends it, some time after the last answer that it waits for.
func (p *ping) none() {
	p.t.Helper()
	answered, lost := p.lost()
	require.NotZero(p.t, answered, p.text.String())
	require.Zero(p.t, lost, "of %d: %s", answered, p.text.String())
}
