package nft_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// TestList reads every kind of element as nft itself writes it.
func TestList(t *testing.T) {
	ns := netnstest.New(t)
	none, err := nft.List(t.Context(), ns, "flt")
	require.NoError(t, err)
	require.Equal(t, nft.Listing{}, none)

	rules := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.WriteFile(rules, []byte(`
table inet flt {
	set nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/24, 192.0.2.1, 192.0.2.8-192.0.2.13 }; }
	set pairs { type ipv6_addr . ipv6_addr; flags interval; elements = { fd00::/64 . fd01::/64 }; }
	set none { type inet_service; }
	map ports { type inet_proto . inet_service : ipv4_addr . inet_service; elements = { tcp . 80 comment "web" : 10.0.0.2 . 8080, sctp . 81 : 10.0.0.3 . 81 }; }
	chain a { accept comment "first"; drop; }
	chain b { type filter hook forward priority filter + 7; policy drop; jump a comment "last"; }
}
table inet other { chain c { drop; }; }
`), 0o600))
	run(t, ns, "-f", rules)
	got, err := nft.List(t.Context(), ns, "flt")
	require.NoError(t, err)
	require.ElementsMatch(t, []nft.Element{{Key: "10.0.0.0/24"}, {Key: "192.0.2.1"}, {Key: "192.0.2.8-192.0.2.13"}}, got.Sets["nets"])
	require.Equal(t, []nft.Element{{Key: "fd00::/64 . fd01::/64"}}, got.Sets["pairs"])
	require.ElementsMatch(t, []nft.Element{{Key: "tcp . 80", Value: "10.0.0.2 . 8080"}, {Key: "sctp . 81", Value: "10.0.0.3 . 81"}}, got.Maps["ports"])
	require.Empty(t, got.Sets["none"])
	require.Len(t, got.Sets, 3)
	require.Len(t, got.Maps, 1)
	require.ElementsMatch(t, []nft.Form{{Name: "a"}, {Name: "b", Type: "filter", Hook: "forward", Priority: 7, Policy: "drop"}}, got.Chains)
	require.Equal(t, []string{`a: first [{"accept": null}]`, `a:  [{"drop": null}]`, `b: last [{"jump": {"target": "a"}}]`}, got.Does())
}

// TestListTellsWhatIsWrong: an nft that fails, or is not there, is no table that is
// not there.
func TestListTellsWhatIsWrong(t *testing.T) {
	ns, dir := netnstest.New(t), t.TempDir()
	fake := func(script string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // a program
	}
	t.Setenv("PATH", dir)
	_, err := nft.List(t.Context(), ns, "flt")
	require.ErrorContains(t, err, "list nft table flt: ")
	require.ErrorContains(t, err, "not found")
	for script, says := range map[string]string{
		"echo 'nft: error while loading shared libraries: libnftables.so.1: cannot open shared object file: No such file or directory' >&2; exit 127": "libnftables.so.1",
		"echo 'Error: Operation not permitted' >&2; exit 1":               "Operation not permitted",
		`echo '{"nftables": [{"metainfo": {"json_schema_version": 2}}]}'`: "not of version 1",
		"echo '{'": "parse nft's JSON",
		`echo '{"nftables": [{"metainfo": {"json_schema_version": 1}}, {"set": {"name": "s", "elem": [{"new": ["a"]}]}}]}'`: "element of s: not understood: map[new:[a]]",
		`echo '{"nftables": [{"metainfo": {"json_schema_version": 1}}, {"map": {"name": "m", "elem": ["a"]}}]}'`:            "element of m: no key and value: a",
	} {
		fake(script)
		_, err := nft.List(t.Context(), ns, "flt")
		require.ErrorContains(t, err, says)
	}
}
