package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// model is the allocator's meaning in the plainest form: a list of leases, a
// history of releases, and a search through every address of a small subnet.
type model struct {
	subnet   core.Subnet
	leases   map[core.Key]core.Lease
	freed    map[netip.Addr]uint64
	former   map[interfaceID]core.Released
	released []core.Released
}

func newModel(s core.Subnet) *model {
	return &model{subnet: s, leases: map[core.Key]core.Lease{}, freed: map[netip.Addr]uint64{}, former: map[interfaceID]core.Released{}}
}

func (m *model) held(ip netip.Addr) bool {
	for _, l := range m.leases {
		if slices.Contains(l.IPs, ip) {
			return true
		}
	}
	return false
}

func (m *model) choosable(cidr netip.Prefix, ip netip.Addr) bool {
	if !cidr.Contains(ip) || m.held(ip) || taboo(cidr, m.subnet.Gateways, ip) != "" {
		return false
	}
	return !slices.ContainsFunc(m.subnet.Exclude, func(r core.AddrRange) bool { return r.Contains(ip) })
}

// choose is the rule of the order, word by word.
func (m *model) choose(cidr netip.Prefix, o core.Owner) netip.Addr {
	for _, ip := range m.former[idOf(o.Pod, o.Key.IfName)].IPs {
		if m.choosable(cidr, ip) {
			return ip
		}
	}
	var best netip.Addr
	for ip := cidr.Addr(); cidr.Contains(ip); ip = ip.Next() {
		if !m.choosable(cidr, ip) {
			continue
		}
		seq, used := m.freed[ip]
		if !used {
			return ip
		}
		if old := m.freed[best]; !best.IsValid() || seq < old {
			best = ip
		}
	}
	return best
}

// acquire is what Acquire must answer: addresses, or nil for an error.
func (m *model) acquire(o core.Owner, fixed netip.Addr) []netip.Addr {
	allowed := func(c netip.Prefix) bool { return c.Contains(fixed) && taboo(c, m.subnet.Gateways, fixed) == "" }
	if fixed.IsValid() && !slices.ContainsFunc(m.subnet.CIDRs, allowed) {
		return nil
	}
	if l, ok := m.leases[o.Key]; ok {
		if fixed.IsValid() && !slices.Contains(l.IPs, fixed) {
			return nil
		}
		return l.IPs
	}
	var out []netip.Addr
	for _, c := range m.subnet.CIDRs {
		ip := m.choose(c, o)
		if fixed.IsValid() && familyOf(fixed) == familyOf(c.Addr()) {
			if ip = fixed; m.held(ip) {
				return nil
			}
		}
		if !ip.IsValid() {
			return nil
		}
		out = append(out, ip)
	}
	return out
}

func (m *model) release(k core.Key, r core.Released) {
	delete(m.leases, k)
	for _, ip := range r.IPs {
		m.freed[ip] = r.Seq
	}
	m.former[idOf(r.Pod, r.IfName)] = r
	m.released = append(m.released, r)
}

// run applies random operations to both and compares after each.
type run struct {
	t    *testing.T
	r    *rand.Rand
	a    *Allocator
	m    *model
	note string
}

func (x *run) step(n int) {
	o := ownerOf(x.r.IntN(14), fmt.Sprintf("pod-%d", x.r.IntN(8)))
	l, held := x.m.leases[o.Key]
	x.note = fmt.Sprintf("step %d on %s", n, o.Key)
	switch op := x.r.IntN(20); {
	case op < 10:
		x.acquire(o, op < 3, op == 9)
	case op < 16 && held:
		x.release(l, op < 12)
	case op == 16:
		x.restart()
	case op == 17:
		x.change()
	case !held:
		require.Empty(x.t, x.a.Release(core.Lease{Subnet: "s", Owner: o}).IPs, x.note)
	}
	x.compare()
}

func (x *run) acquire(o core.Owner, fix, cancel bool) {
	req := Request{Subnet: x.m.subnet, Owner: o}
	var fixed netip.Addr
	if fix {
		c := x.m.subnet.CIDRs[x.r.IntN(len(x.m.subnet.CIDRs))]
		fixed = (&space{cidr: c}).at(uint64(x.r.IntN(18)))
		req.IPs = []netip.Addr{fixed}
	}
	want := x.m.acquire(o, fixed)
	got, err := x.a.Acquire(req)
	if want == nil {
		require.Error(x.t, err, x.note)
		require.Equal(x.t, core.CodeAddress, codeOrConflict(err), x.note)
		return
	}
	require.NoError(x.t, err, x.note)
	require.Equal(x.t, want, got.IPs, x.note)
	switch {
	case cancel:
		x.a.Cancel(got)
	case x.m.leases[o.Key].IPs == nil:
		x.m.leases[o.Key] = got
	}
}

// codeOrConflict folds the one other code an owner can get: another address
// than the one it has.
func codeOrConflict(err error) uint {
	if c := core.CodeOf(err); c != core.CodeConflict {
		return c
	}
	return core.CodeAddress
}

func (x *run) release(l core.Lease, retire bool) {
	var first core.Released
	if retire {
		first = x.a.Retire(l)
		x.compare()
	}
	r := x.a.Release(l)
	if retire {
		require.Equal(x.t, first, r, x.note)
	}
	require.Equal(x.t, l.IPs, r.IPs, x.note)
	x.m.release(l.Owner.Key, r)
}

// restart keeps what a journal keeps: leases and all releases, in any order.
func (x *run) restart() {
	var leases []core.Lease
	for _, l := range x.m.leases {
		leases = append(leases, l)
	}
	x.r.Shuffle(len(x.m.released), func(i, j int) {
		x.m.released[i], x.m.released[j] = x.m.released[j], x.m.released[i]
	})
	x.a = New()
	require.NoError(x.t, x.a.Restore(leases, x.m.released), x.note)
}

// change gives the subnet other excludes and another size.
func (x *run) change() {
	from := x.m.subnet.CIDRs[0].Addr().Next()
	for range x.r.IntN(10) {
		from = from.Next()
	}
	x.m.subnet.Exclude = []core.AddrRange{{From: from, To: from.Next().Next()}}
	if x.r.IntN(2) == 0 {
		x.m.subnet.Exclude = nil
	}
	bits := 27 + x.r.IntN(3)
	x.m.subnet.CIDRs = slices.Clone(x.m.subnet.CIDRs)
	x.m.subnet.CIDRs[0] = netip.PrefixFrom(x.m.subnet.CIDRs[0].Addr(), bits)
}

func (x *run) compare() {
	want := make([]core.Lease, 0, len(x.m.leases))
	for _, l := range x.m.leases {
		want = append(want, l)
	}
	slices.SortFunc(want, func(a, b core.Lease) int { return a.IPs[0].Compare(b.IPs[0]) })
	got := x.a.Leases()
	require.Len(x.t, got, len(want), x.note)
	seen, macs := map[netip.Addr]bool{}, map[string]bool{}
	for i, l := range got {
		require.Equal(x.t, want[i], l, x.note)
		for _, ip := range l.IPs {
			require.False(x.t, seen[ip], "%s: two owners of %s", x.note, ip)
			seen[ip] = true
		}
		require.False(x.t, macs[l.MAC.String()], "%s: two owners of %s", x.note, l.MAC)
		macs[l.MAC.String()] = true
	}
}

// TestModel: any sequence of acquire, cancel, retire, release, restart and
// changed excludes gives what the model gives.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		s := subnet("s", "10.0.0.0/28")
		if seed%2 == 1 {
			s = subnet("s", "10.0.0.0/28", "fd00::/124")
		}
		x := &run{t: t, r: rand.New(rand.NewPCG(seed, 1)), a: New(), m: newModel(s)}
		for n := range 150 {
			x.step(n)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// TestConcurrentOwners: many goroutines on one small subnet; a table of owners
// of our own proves that no address ever has two.
func TestConcurrentOwners(t *testing.T) {
	c := &contest{t: t, a: New(), s: subnet("s", "10.0.0.0/27")}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for n := range 400 {
				c.step(r, ownerOf(g*1000+n, fmt.Sprintf("pod-%d", r.IntN(40))))
			}
		})
	}
	wg.Wait()
	require.Empty(t, c.a.Leases())
}

// contest is one allocator and who holds what by our own count.
type contest struct {
	t      *testing.T
	a      *Allocator
	s      core.Subnet
	owners sync.Map // address or MAC -> key
}

func (c *contest) step(r *rand.Rand, o core.Owner) {
	req := Request{Subnet: c.s, Owner: o}
	if r.IntN(4) == 0 {
		req.IPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + r.IntN(28))})}
	}
	l, err := c.a.Acquire(req)
	if errors.Is(err, core.ErrHeld) || errors.Is(err, core.ErrExhausted) {
		return
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	things := []string{l.IPs[0].String(), l.MAC.String()}
	for _, k := range things {
		if other, taken := c.owners.LoadOrStore(k, o.Key); taken {
			c.t.Errorf("%s given to %s and %s", k, other, o.Key)
		}
	}
	for _, k := range things {
		c.owners.Delete(k)
	}
	switch r.IntN(3) {
	case 0:
		c.a.Cancel(l)
	case 1:
		c.a.Retire(l)
		c.a.Release(l)
	default:
		c.a.Release(l)
	}
}

// TestRestartKeepsTheOrder: what a journal keeps of many releases is enough to
// go on in the same order.
func TestRestartKeepsTheOrder(t *testing.T) {
	s := subnet("s", "10.0.0.0/29") // .2 to .6
	a := New()
	var all []core.Released
	for n := range 5 {
		_, err := a.Acquire(Request{Subnet: s, Owner: owner(n)})
		require.NoError(t, err)
	}
	for _, n := range []int{3, 0, 4, 1, 2} {
		all = append(all, a.Release(core.Lease{Subnet: "s", Owner: owner(n)}))
	}
	b := New()
	slices.SortFunc(all, func(x, y core.Released) int { return cmp.Compare(y.Seq, x.Seq) })
	require.NoError(t, b.Restore(nil, all))
	for _, want := range []string{"10.0.0.5", "10.0.0.2", "10.0.0.6", "10.0.0.3", "10.0.0.4"} {
		l, err := b.Acquire(Request{Subnet: s, Owner: ownerOf(len(b.Leases())+50, fmt.Sprint("new-", want))})
		require.NoError(t, err)
		require.Equal(t, ips(want), l.IPs)
	}
}
