package ipset_test

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/ipset"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// sh runs ipset itself, an independent witness.
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

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// members are what ipset says that a set holds.
func members(t *testing.T, ns *netns.Handle, name string) (out []string) {
	t.Helper()
	for line := range strings.Lines(sh(t, ns, "ipset save "+name)) {
		if f := strings.Fields(line); f[0] == "add" {
			out = append(out, f[2])
		}
	}
	slices.Sort(out)
	return out
}

// TestSets: each form of a set becomes what is wanted from whatever was there, and is
// read back the same; others' sets stay.
func TestSets(t *testing.T) {
	t.Parallel()
	for _, s := range []ipset.Set{
		{Name: "flt4", Members: prefixes("10.16.0.0/16", "10.17.0.0/16", "192.0.2.1/32", "0.0.0.0/1")},
		{Name: "flt6", V6: true, Members: prefixes("fd00:10:16::/112", "2001:db8::1/128")},
		{Name: "flth", Hosts: true, Members: prefixes("10.16.0.5/32", "192.0.2.1/32")},
		{Name: "flth6", V6: true, Hosts: true, Members: prefixes("fd00:10:16::5/128")},
		{Name: "fltc", Counters: true, Members: prefixes("10.16.0.0/16")},
	} {
		for what, before := range map[string]string{
			"nothing": ":", "the same": "", "another type": "ipset create " + s.Name + " hash:ip,port",
			"counters":             "ipset create " + s.Name + " hash:net counters; ipset add " + s.Name + " 172.16.0.0/12",
			"an end in the middle": "ipset create fairlead-swap hash:net",
		} {
			ns := netnstest.New(t)
			sh(t, ns, "ipset create other hash:ip; ipset add other 192.0.2.7")
			table := ipset.New(ns)
			if before == "" {
				require.NoError(t, table.Add(s))
			} else {
				sh(t, ns, before)
			}
			require.NoError(t, table.Add(s), "%s after %s", s.Name, what)
			all, err := table.Read()
			require.NoError(t, err)
			require.True(t, s.Fits(all[s.Name]), what)
			missing, extra := s.Lacks(all[s.Name])
			require.Empty(t, missing, what)
			require.NoError(t, table.Remove(s, extra))
			require.Len(t, members(t, ns, s.Name), len(s.Members), what)

			require.NoError(t, table.Remove(s, s.Members[:1]))
			require.NoError(t, table.Remove(s, s.Members[:1]), "nothing left to remove")
			require.Len(t, members(t, ns, s.Name), len(s.Members)-1)
			require.NoError(t, table.Destroy(s.Name))
			require.NoError(t, table.Destroy(s.Name))
			require.NoError(t, table.Remove(s, s.Members))
			require.Equal(t, []string{"192.0.2.7"}, members(t, ns, "other"))
		}
	}
}

// TestManyMembers come in several messages.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	table := ipset.New(netnstest.New(t))
	s := ipset.Set{Name: "flt"}
	for i := range 3000 {
		s.Members = append(s.Members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	require.NoError(t, table.Add(s))
	all, err := table.Read()
	require.NoError(t, err)
	require.ElementsMatch(t, s.Members, all["flt"].Members)
}

// TestUsedSetStays: one that a rule speaks of is not destroyed, and one of another form
// takes its place under the rule.
func TestUsedSetStays(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	table := ipset.New(ns)
	s := ipset.Set{Name: "flt", Members: prefixes("10.16.0.0/16")}
	require.NoError(t, table.Add(s))
	sh(t, ns, "iptables -A FORWARD -m set --match-set flt src -j DROP")
	require.ErrorIs(t, table.Destroy("flt"), ipset.ErrUsed)
	s.Counters = true
	require.NoError(t, table.Add(s))
	require.Contains(t, sh(t, ns, "ipset save flt"), "counters")
	require.Contains(t, sh(t, ns, "iptables-save"), "--match-set flt src")
}

// TestWatch hears of sets of ours that went and of those with more or fewer members, and of
// no others.
func TestWatch(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	table := ipset.New(ns)
	require.NoError(t, table.Add(ipset.Set{Name: "flt", Members: prefixes("10.16.0.0/16", "10.17.0.0/16")}))
	sh(t, ns, "ipset create other hash:net; ipset add other 10.0.0.0/8")
	lost := make(chan struct{}, 64)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	looked := make(chan struct{}, 1)
	go func() {
		done <- ipset.Watch(ctx, ns, 5*time.Millisecond, func(name string) bool {
			select {
			case looked <- struct{}{}:
			default:
			}
			return name == "flt"
		}, func(string) { lost <- struct{}{} })
	}()
	look := func() { // one that begins after now, and is compared; each asks for two sets
		for range 6 {
			<-looked
		}
	}
	for _, harm := range []string{"ipset add flt 8.8.8.0/24", "ipset del flt 10.16.0.0/16", "ipset flush flt", "ipset destroy flt"} {
		look()
		sh(t, ns, harm)
		select {
		case <-lost:
		case err := <-done:
			t.Fatalf("%s: the watch ended: %v", harm, err)
		case <-time.After(time.Minute):
			t.Fatal("not heard of: " + harm)
		}
		sh(t, ns, "ipset -exist create flt hash:net; ipset flush flt; ipset add flt 10.16.0.0/16; ipset add flt 10.17.0.0/16")
		look()
		for len(lost) > 0 { // of what was put right
			<-lost
		}
	}
	sh(t, ns, "ipset flush other; ipset add other 10.18.0.0/16; ipset add other 10.19.0.0/16")
	look()
	require.Empty(t, lost)
	stop()
	require.NoError(t, <-done)
}
