package resolve

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

const ipPool = "ovn.kubernetes.io/ip_pool"

// pooled is what pod name gets of a list, by who controls it.
func pooled(t *testing.T, name, controller, value string) (*core.NIC, error) {
	t.Helper()
	w := standard()
	w.pods["default/"+name] = &Pod{
		Pod: core.Pod{Namespace: "default", Name: name}, Annotations: map[string]string{ipPool: value}, Controller: controller,
	}
	req := request()
	req.Pod.Name = name
	wants, err := Resolve(t.Context(), w, Input{Request: req})
	if err != nil {
		return nil, err
	}
	return wants[0].Steps[0].NIC, nil
}

// TestIPPoolLists: the forms of Kube-OVN.
func TestIPPoolLists(t *testing.T) {
	for value, want := range map[string]string{
		"10.16.0.11,10.16.0.12":                               "[[10.16.0.11] [10.16.0.12]]",
		"10.16.0.11;10.16.0.12":                               "[[10.16.0.11] [10.16.0.12]]",
		" 10.16.0.11 ; 10.16.0.12 ;":                          "[[10.16.0.11] [10.16.0.12]]",
		"10.16.0.11":                                          "[[10.16.0.11]]",
		"10.16.0.11,fd00:10:16::11":                           "[[10.16.0.11 fd00:10:16::11]]",
		"10.16.0.11,fd00:10:16::11;":                          "[[10.16.0.11 fd00:10:16::11]]",
		"10.16.0.11,fd00:10:16::11;10.16.0.12,fd00:10:16::12": "[[10.16.0.11 fd00:10:16::11] [10.16.0.12 fd00:10:16::12]]",
		"fd00:10:16::11,fd00:10:16::12":                       "[[fd00:10:16::11] [fd00:10:16::12]]",
		"10.16.0.11;fd00:10:16::12":                           "[[10.16.0.11] [fd00:10:16::12]]",
	} {
		nic, err := pooled(t, "p-x", "ReplicaSet", value)
		require.NoError(t, err, value)
		require.Equal(t, want, fmt.Sprint(nic.Pool), value)
		require.Empty(t, nic.IPs)
	}
	for value, c := range map[string]struct {
		code uint
		says string
	}{
		"pool-a":                           {102, "names an IPPool, which only a controller serves: write its addresses here"},
		"10.16.0.11;x":                     {102, `"x"`},
		"10.16.0.11,10.16.0.12;10.16.0.13": {102, "two addresses of one family"},
		"10.16.0.11;10.17.0.11":            {103, "10.17.0.11"},
		"10.16.0.11;10.16.0.1":             {103, "gateway"},
	} {
		_, err := pooled(t, "p-x", "", value)
		require.Equal(t, c.code, core.CodeOf(err), "%s: %v", value, err)
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, ipPool)
	}
}

// TestComplaint_FixedAddressPerReplica: asked for since 2018. Each replica of a
// StatefulSet has the element of its ordinal, whoever was there first.
func TestComplaint_FixedAddressPerReplica(t *testing.T) {
	const value = "10.16.0.11,fd00:10:16::11;10.16.0.12,fd00:10:16::12;10.16.0.13"
	for _, c := range []struct {
		name, controller, ips string
		fixed                 bool
	}{
		{"web-0", "StatefulSet", "[10.16.0.11 fd00:10:16::11]", true},
		{"web-1", "StatefulSet", "[10.16.0.12 fd00:10:16::12]", true},
		{"web-2", "StatefulSet", "[10.16.0.13]", true},
		{"web-1", "", "[10.16.0.12 fd00:10:16::12]", true},
		{"web-9", "", "[]", false}, // nobody says that it is a replica
		{"web-1", "ReplicaSet", "[]", false},
		{"web-01", "StatefulSet", "[]", false},
		{"web", "StatefulSet", "[]", false},
	} {
		nic, err := pooled(t, c.name, c.controller, value)
		require.NoError(t, err)
		require.Equal(t, c.ips, fmt.Sprint(nic.IPs), "%s %s", c.name, c.controller)
		require.Equal(t, !c.fixed, len(nic.Pool) > 0)
	}
	// Also where the first ordinal is another than 0 (spec.ordinals.start).
	nic, err := pooled(t, "web-5", "StatefulSet", "10.16.0.10;10.16.0.11;10.16.0.12;10.16.0.13;10.16.0.14;10.16.0.15")
	require.NoError(t, err)
	require.Equal(t, "[10.16.0.15]", fmt.Sprint(nic.IPs))
	_, err = pooled(t, "web-3", "StatefulSet", value)
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	require.ErrorContains(t, err, "none for replica 3")
}

// TestIPPoolOfAProvider: per NAD, and a fixed address goes first.
func TestIPPoolOfAProvider(t *testing.T) {
	w := standard()
	w.note(networks, "second", "second.default.ovn.kubernetes.io/ip_pool", "10.20.0.11;10.20.0.12", ipPool, "10.16.0.11", "ovn.kubernetes.io/ip_address", "10.16.0.9")
	wants := resolved(t, w, nil)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.16.0.9")}, wants[0].Steps[0].NIC.IPs)
	require.Empty(t, wants[0].Steps[0].NIC.Pool)
	require.Len(t, wants[1].Steps[0].NIC.Pool, 2)
}

// TestStaticPodIsItsMirror: kubelet knows a static pod by the hash of its file;
// the API server knows its mirror by a UID of its own.
func TestStaticPodIsItsMirror(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		uid   string
		notes map[string]string
		ok    bool
	}{
		{hash, map[string]string{}, true},
		{hash, map[string]string{"kubernetes.io/config.hash": hash}, true},
		{hash, map[string]string{"kubernetes.io/config.hash": "ffffffffffffffffffffffffffffffff"}, false},
		{"0123456789abcdef", map[string]string{}, false},
		{"8f0ff6ee-4b4c-4cf9-8bb3-0b2a6d39d0fa", map[string]string{}, false},
	} {
		w := standard()
		w.pods["default/p"].Annotations = c.notes
		req := request()
		req.Pod.UID = c.uid
		_, err := Resolve(t.Context(), w, Input{Request: req})
		require.Equal(t, c.ok, err == nil, "%s %v: %v", c.uid, c.notes, err)
	}
}

// TestFamily: a NIC of a Subnet of both families has the one that its annotation
// names; a value that names none is refused.
func TestFamily(t *testing.T) {
	const family = "ovn.kubernetes.io/ip_family"
	resolved := func(notes map[string]string) (*core.NIC, error) {
		w := standard()
		w.pods["default/p"] = &Pod{Pod: core.Pod{Namespace: "default", Name: "p"}, Annotations: notes}
		req := request()
		req.Pod.Name = "p"
		wants, err := Resolve(t.Context(), w, Input{Request: req})
		if err != nil {
			return nil, err
		}
		return wants[0].Steps[0].NIC, nil
	}
	for value, want := range map[string][]core.Family{
		"ipv4": {core.IPv4}, "ipv6": {core.IPv6}, "": {core.IPv4, core.IPv6},
	} {
		nic, err := resolved(map[string]string{family: value})
		require.NoError(t, err)
		require.Equal(t, want, nic.Families(), value)
	}
	nic, err := resolved(map[string]string{
		family: "ipv4", "ovn.kubernetes.io/ip_address": "10.16.0.9", "ovn.kubernetes.io/allocated": "true",
	})
	require.NoError(t, err)
	require.True(t, nic.Given, "these are all its addresses")
	_, err = resolved(map[string]string{family: "dual"})
	require.ErrorContains(t, err, "annotation "+family+": \"dual\" is none of ipv4, ipv6")
	require.Equal(t, core.CodeValue, core.CodeOf(err))
}
