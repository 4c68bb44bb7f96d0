package ovs_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
)

// TestInternalPort: on the kernel's datapath it is a veth pair.
func TestInternalPort(t *testing.T) {
	for user, want := range map[bool]string{true: "internal-port", false: "veth-pair"} {
		s := core.Spec{Key: core.Key{Container: "abc", IfName: "eth0"}, NIC: &core.NICSpec{}}
		require.NoError(t, ovsdriver.New(ovsdriver.Config{UserspaceDatapath: user}).Carry(&s, &core.NIC{Type: "internal-port"}))
		require.Equal(t, &core.OVSPort{HostIf: "abc_h", Type: want}, s.OVS())
	}
}

func TestHostIf(t *testing.T) {
	long := "532bed4f476d3e2a63f14907bfe9ddd5d89278eb75a3340901f5d8acdabbd46a"
	for _, c := range []struct{ id, ifName, want string }{
		{long, "eth0", "532bed4f476d_h"},
		{long, "net1", "532bed4f_net1_h"},
		{long, "n", "532bed4f476_n_h"},
		{"abc", "eth0", "abc_h"},
		{"abc", "net1", "abc_net1_h"},
		{"abc", "net12345", "abc_net12345_h"},
	} {
		require.Equal(t, c.want, core.HostIf(core.Key{Container: c.id, IfName: c.ifName}))
	}
	hashed := core.HostIf(core.Key{Container: long, IfName: "net10"})
	require.Regexp(t, `^[0-9a-v]{13}_h$`, hashed)
	require.NotEqual(t, hashed, core.HostIf(core.Key{Container: long, IfName: "net11"}))
	require.NotEqual(t, core.HostIf(core.Key{Container: "ab_net1", IfName: "eth0"}), core.HostIf(core.Key{Container: "ab", IfName: "net1"}))
}

// TestHostIfProperties: for any two keys of containers whose first 8 characters
// differ, and for all interfaces of one container, the names differ; every name
// is valid for the kernel and at most 15 bytes.
func TestHostIfProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	const idChars, ifChars = "0123456789abcdef_.-", "abcxyz0129_.-"
	text := func(chars string, least, most int) string {
		b := make([]byte, least+rnd.IntN(most-least+1))
		for i := range b {
			b[i] = chars[rnd.IntN(len(chars))]
		}
		return string(b)
	}
	owner := map[string]core.Key{}
	prefixes := map[string]string{}
	for range 3000 {
		id := "a" + text(idChars, 1, 63)
		start := id[:min(len(id), 8)]
		if other, ok := prefixes[start]; ok && other != id {
			continue
		}
		prefixes[start] = id
		for _, ifName := range []string{"eth0", "net1", "net2", "net10", text(ifChars, 1, 15), text(ifChars, 1, 15)} {
			key := core.Key{Container: id, IfName: ifName}
			name := core.HostIf(key)
			require.LessOrEqual(t, len(name), 15)
			require.NotContains(t, name, "/")
			require.Equal(t, name, core.HostIf(key))
			if other, ok := owner[name]; ok {
				require.Equal(t, other, key, "both are %s", name)
			}
			owner[name] = key
		}
	}
}
