package netfilter_test

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

const table = "fairlead-test"

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// sh runs a shell in ns, an independent witness.
func sh(t *testing.T, ns *netns.Handle, script string) string {
	t.Helper()
	var out []byte
	err := ns.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
		return err
	})
	require.NoError(t, err, "%s: %s", script, out)
	return string(out)
}

// sample is the node of a cluster with OVN.
func sample() rules.Input {
	return rules.Input{
		Subnets: []rules.Subnet{
			{Name: "web", CIDRs: prefixes("10.16.0.0/16", "fd00:10:16::/112"), NAT: true},
			{Name: "data", CIDRs: prefixes("10.17.0.0/16", "fd00:10:17::/112")},
		},
		Nodes:    prefixes("100.64.0.0/16", "fd00:100:64::/112"),
		Services: prefixes("10.96.0.0/12", "fd00:10:96::/112"),
		Own:      addrs("192.0.2.1", "2001:db8::1"), Others: addrs("192.0.2.9", "2001:db8::9"),
		Join: "ovn0",
	}
}

// everything is what iptables, ipset and nft tell of a node. Counters are none of it,
// and of what differs from one reading to the next.
func everything(t *testing.T, ns *netns.Handle) string {
	t.Helper()
	return sh(t, ns, "for p in iptables ip6tables; do for b in nft legacy; do $p-$b-save | sed 's/^#.*//; s/\\[[0-9:]*\\]//'; done; done; ipset save; nft -s list tables")
}

// TestApplyIsRepeatable: what is as it should be is not written, and a filter without
// anything to do leaves nothing.
func TestApplyIsRepeatable(t *testing.T) {
	t.Parallel()
	for _, mode := range []netfilter.Mode{netfilter.IPTables, netfilter.NFTables} {
		ns := netnstest.New(t)
		sh(t, ns, "iptables-nft -t nat -A POSTROUTING -s 172.16.0.0/12 -j MASQUERADE; iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t nat -A PREROUTING -j KUBE-SERVICES")
		before := everything(t, ns)
		f := netfilter.New(netfilter.Config{Host: ns, Mode: mode, Table: table})
		require.ErrorIs(t, f.Check(t.Context(), sample()), core.ErrDrift)
		for range 2 {
			require.NoError(t, f.Apply(t.Context(), sample()))
			require.NoError(t, f.Check(t.Context(), sample()), mode)
		}
		require.NoError(t, f.Apply(t.Context(), rules.Input{}))
		require.Equal(t, withoutEmpty(before), withoutEmpty(everything(t, ns)), mode)
	}
}

// withoutEmpty leaves out tables that have no rule.
func withoutEmpty(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool {
		return l == "" || strings.HasPrefix(l, "*") || strings.HasPrefix(l, ":") && !strings.Contains(l, " - ") || l == "COMMIT" || strings.HasPrefix(l, "table ip")
	}), "\n")
}

// only has programs found in a folder that has these alone.
func only(t *testing.T, programs ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		at, err := exec.LookPath(p)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(at, filepath.Join(dir, p)))
	}
	t.Setenv("PATH", dir)
}

// TestWithoutIPTables: by itself the agent takes nftables then; asked for iptables, it says
// that these are missing.
func TestWithoutIPTables(t *testing.T) {
	ns := netnstest.New(t)
	sh(t, ns, "ipset create ovn40subnets hash:net; iptables-nft -A INPUT -m set --match-set ovn40subnets src -j ACCEPT; ipset create ovn40services hash:net; ipset create ovn40subnets-out hash:net")
	only(t, "nft", "ipset", "sh")
	f := netfilter.New(netfilter.Config{Host: ns, Table: table})
	require.NoError(t, f.Apply(t.Context(), sample()))
	require.Contains(t, sh(t, ns, "nft list table inet "+table), "OVN-MASQUERADE")
	require.NoError(t, f.Check(t.Context(), sample()), "a set that somebody's rule needs is no difference")
	require.NotContains(t, sh(t, ns, "ipset save"), "services")
	require.ErrorIs(t, netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.IPTables, Table: table}).Apply(t.Context(), sample()), iptables.ErrNotInstalled)
	require.NoError(t, f.Check(t.Context(), sample()), "what is there stays")
}

// TestOneFamilyFails: it is said, and the other's rules are there.
func TestOneFamilyFails(t *testing.T) {
	ns := netnstest.New(t)
	only(t, "iptables-nft-save", "iptables-nft-restore", "iptables-restore", "nft", "sh")
	f := netfilter.New(netfilter.Config{Host: ns, Table: table})
	require.ErrorContains(t, f.Apply(t.Context(), sample()), "ip6tables")
	require.Contains(t, sh(t, ns, "iptables-nft-save"), "-A OVN-MASQUERADE -j MASQUERADE --random-fully")
}

// TestPods: the node's own pods are in sets of their own where iptables keep the rules, and
// come and go without the rest being looked at; what somebody took out of it is a
// difference, and comes back.
func TestPods(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.IPTables, Table: table})
	has := func(want ...string) {
		t.Helper()
		require.Equal(t, want, strings.Fields(sh(t, ns, "ipset save | sed -n 's/^add ovn.0local-pod-ip-nat //p' | sort")))
	}
	require.NoError(t, f.Pods(addrs("10.16.0.5", "fd00:10:16::5")), "before anything is there")
	require.NoError(t, f.Apply(t.Context(), sample()))
	has("10.16.0.5", "fd00:10:16::5")
	require.Contains(t, sh(t, ns, "ipset save"), "create ovn40local-pod-ip-nat hash:ip family inet ")
	require.NoError(t, f.Pods(addrs("10.16.0.5", "10.16.0.6")))
	has("10.16.0.5", "10.16.0.6")
	require.NoError(t, f.Check(t.Context(), sample()))

	sh(t, ns, "ipset flush ovn40local-pod-ip-nat; ipset add ovn60local-pod-ip-nat fd00:10:16::9")
	found, err := f.Differences(t.Context(), sample())
	require.NoError(t, err)
	require.Len(t, found, 3)
	require.NoError(t, f.Apply(t.Context(), sample()))
	has("10.16.0.5", "10.16.0.6")
	sh(t, ns, "ipset destroy ovn40local-pod-ip-nat")
	require.NoError(t, f.Pods(addrs("10.16.0.6")))
	has("10.16.0.6")

	byTables := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.NFTables, Table: table})
	require.NoError(t, byTables.Pods(addrs("10.16.0.6")))
	require.NoError(t, byTables.Apply(t.Context(), sample()))
	require.NoError(t, byTables.Check(t.Context(), sample()))
	require.NotContains(t, sh(t, ns, "ipset save; nft list table inet "+table), "local-pod-ip-nat")
}

// failing has programs of these names say that they cannot.
func failing(t *testing.T, programs ...string) (end func()) {
	t.Helper()
	dir, path := t.TempDir(), os.Getenv("PATH")
	for _, p := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, p), []byte("#!/bin/sh\necho somebody holds the lock >&2; exit 4\n"), 0o700)) //nolint:gosec // a program
	}
	t.Setenv("PATH", dir+":"+path)
	return func() { t.Setenv("PATH", path) }
}

// TestBackendMoveFails: rules go from a backend when they stand in the other one. Where
// they cannot come they stay, each family's for itself.
func TestBackendMoveFails(t *testing.T) {
	for from, to := range map[string]string{"nft": "legacy", "legacy": "nft"} {
		ns := netnstest.New(t)
		f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.IPTables, Table: table})
		each := func(backend, args string) {
			sh(t, ns, "for p in iptables ip6tables; do $p-"+backend+" -t nat "+args+"; done")
		}
		has := func(program, backend string) bool {
			return strings.Contains(sh(t, ns, program+"-"+backend+"-save"), "-A OVN-MASQUERADE -j MASQUERADE")
		}
		each(from, "-N KUBE-SERVICES")
		require.NoError(t, f.Apply(t.Context(), sample()))
		require.True(t, has("iptables", from))
		each(from, "-X KUBE-SERVICES")
		each(to, "-N KUBE-SERVICES")
		end := failing(t, "iptables-"+to+"-restore")
		require.ErrorContains(t, f.Apply(t.Context(), sample()), "somebody holds the lock")
		require.True(t, has("iptables", from), "%s is no backend yet", to)
		require.False(t, has("iptables", to))
		require.False(t, has("ip6tables", from))
		require.True(t, has("ip6tables", to))
		end()
		require.NoError(t, f.Apply(t.Context(), sample()))
		require.NoError(t, f.Check(t.Context(), sample()))
		require.False(t, has("iptables", from))
		require.True(t, has("iptables", to))
	}
}

// TestRendererMoveFails: what one renderer keeps goes when the other one has it.
func TestRendererMoveFails(t *testing.T) {
	for from, to := range map[netfilter.Mode]netfilter.Mode{netfilter.IPTables: netfilter.NFTables, netfilter.NFTables: netfilter.IPTables} {
		ns := netnstest.New(t)
		with := func(mode netfilter.Mode) *netfilter.Filter {
			return netfilter.New(netfilter.Config{Host: ns, Mode: mode, Table: table})
		}
		ours := func() string {
			return sh(t, ns, "for p in iptables ip6tables; do for b in nft legacy; do $p-$b-save | grep '^-.*OVN-'; done; done; nft -s list ruleset inet")
		}
		require.NoError(t, with(from).Apply(t.Context(), sample()))
		was := ours()
		require.Contains(t, was, "OVN-MASQUERADE")
		programs := []string{"nft"}
		if to == netfilter.IPTables {
			programs = []string{"iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore"}
		}
		end := failing(t, programs...)
		require.ErrorContains(t, with(to).Apply(t.Context(), sample()), "somebody holds the lock")
		end()
		require.Equal(t, was, ours(), "%s is no renderer yet", to)
		require.NoError(t, with(to).Apply(t.Context(), sample()))
		require.NoError(t, with(to).Check(t.Context(), sample()))
		require.NotContains(t, ours(), was)
	}
}

// TestChangedByHand: a policy of ours that somebody changes, and a rule that goes by our
// comment, are seen and put right.
func TestChangedByHand(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.NFTables, Table: table})
	require.NoError(t, f.Apply(t.Context(), sample()))
	whole := sh(t, ns, "nft -s list table inet "+table)
	for harm, says := range map[string]string{
		"nft chain inet " + table + " filter-forward '{ policy drop; }'": "filter-forward (filter forward 0, policy drop)",
		`in="inet ` + table + ` OVN-MASQUERADE"; rule=$(nft -a list chain $in | grep -m1 masquerade)
			nft replace rule $in handle ${rule##* } accept comment "$(echo "$rule" | sed 's/.*comment \("[^"]*"\).*/\1/')"`: `[{\"accept\": null}]`,
	} {
		sh(t, ns, harm)
		err := f.Check(t.Context(), sample())
		require.ErrorIs(t, err, core.ErrDrift, harm)
		require.ErrorContains(t, err, says)
		require.NoError(t, f.Apply(t.Context(), sample()))
		require.NoError(t, f.Check(t.Context(), sample()))
		require.Equal(t, whole, sh(t, ns, "nft -s list table inet "+table))
	}
}
