package lease_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
)

func TestNames(t *testing.T) {
	addr := func(text string) core.Claim { return core.Claim{Domain: "db", Addr: netip.MustParseAddr(text)} }
	require.Equal(t, "db.10.9.0.17", lease.Name(addr("10.9.0.17")))
	require.Equal(t, "db.10.9.0.17", lease.Name(addr("::ffff:10.9.0.17")))
	require.Equal(t, "db.fd00-0018-0000-0000-0000-0000-0000-0001", lease.Name(addr("fd00:18::1")))
	require.Equal(t, "db.mac.020a09000011", lease.Name(core.Claim{Domain: "db", MAC: core.MAC{2, 10, 9, 0, 0, 17}}))
	require.Equal(t, "net1.vlan7", lease.OfSubnet(core.Subnet{Name: "db", Underlay: "net1", VLAN: 7}))
	require.Equal(t, "db", lease.OfSubnet(core.Subnet{Name: "db", VLAN: 7}))
	long := strings.Repeat("a", 250)
	require.Len(t, lease.Domain(long, 7), 213)
	require.NotEqual(t, lease.Domain(long, 7), lease.Domain(long, 8))
}

// TestDead: only what proves that a sandbox is no more lets a lease pass on.
func TestDead(t *testing.T) {
	h := lease.Holder{Node: "n1", BootID: "b1"}
	for n, dead := range map[lease.Node]bool{
		{}: true, {Known: true, OutOfService: true, BootID: "b1"}: true, {Known: true, BootID: "b2"}: true,
		{Known: true, BootID: "b1"}: false, {Known: true}: false,
	} {
		require.Equal(t, dead, lease.Dead(h, n) != "", "%+v", n)
	}
	require.Empty(t, lease.Dead(lease.Holder{Node: "n1"}, lease.Node{Known: true, BootID: "b2"}), "nobody knows in which boot it was")
}

// TestBook: two sandboxes of a node do not have one lease, in any order of what happens; a
// failed attempt leaves what was there.
func TestBook(t *testing.T) {
	c := []core.Claim{{Domain: "db", Addr: netip.MustParseAddr("10.9.0.17")}, {Domain: "db", MAC: core.MAC{2, 0, 0, 0, 0, 1}}}
	holder := func(pod, uid, sandbox string) lease.Holder {
		return lease.Holder{Pod: core.Pod{Namespace: "a", Name: pod, UID: uid}, Key: core.Key{Container: sandbox, IfName: "net1"}, Node: "n1", BootID: "b1"}
	}
	var b lease.Book
	a, other, next := holder("a", "u1", "s1"), holder("b", "u2", "s2"), holder("a", "u1", "s3")
	take := func(h lease.Holder, claims []core.Claim) ([]lease.Entry, error) {
		return b.Take(h, claims, time.Unix(1, 0))
	}
	_, err := take(a, c)
	require.NoError(t, err)
	_, err = take(a, c)
	require.NoError(t, err, "the same once more")
	_, err = take(other, c)
	require.Equal(t, core.ReasonAddressHeld, core.ReasonOf(err))
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	_, err = take(other, c[1:])
	require.Equal(t, core.ReasonMACInUse, core.ReasonOf(err))
	require.Equal(t, core.CodeAddress, core.CodeOf(err))

	before, err := take(next, c)
	require.NoError(t, err, "the pod's next sandbox")
	require.Empty(t, b.Free(a, c), "a late DEL of the former one")
	require.Empty(t, b.Undo(next, c, before))
	e, _ := b.Get(lease.Name(c[0]))
	require.True(t, e.Holder.Same(a))
	require.True(t, e.Ours(next), "the API server may have it")

	require.Len(t, b.Free(a, c), 2)
	before, err = take(other, c)
	require.NoError(t, err)
	require.Len(t, b.Undo(other, c, before), 2, "it is still to be given back")
	for _, e := range b.All() {
		require.True(t, e.Free && e.Ours(a) && e.Ours(other))
		b.Drop(e)
	}
	require.Empty(t, b.All())
}
