package netfilter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// TestReadsWhatWasChanged: iptables' rules in nf_tables are read again only when somebody
// changed nftables, and then they are.
func TestReadsWhatWasChanged(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	program, err := exec.LookPath("iptables-nft-save")
	require.NoError(t, err)
	script := "#!/bin/sh\necho asked >> " + said + "\nexec " + program + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "iptables-nft-save"), []byte(script), 0o755)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	asked := func() int {
		b, err := os.ReadFile(said) //nolint:gosec // the test's own
		require.NoError(t, err)
		return strings.Count(string(b), "asked")
	}
	ns := netnstest.New(t)
	f := netfilter.New(netfilter.Config{Host: ns, Mode: netfilter.IPTables, Table: table})
	require.NoError(t, f.Apply(t.Context(), sample()))
	require.NoError(t, f.Check(t.Context(), sample()))
	before := asked()
	for range 3 {
		require.NoError(t, f.Apply(t.Context(), sample()))
		require.NoError(t, f.Check(t.Context(), sample()))
	}
	require.Equal(t, before, asked())
	sh(t, ns, "iptables-nft -t nat -I OVN-POSTROUTING 1 -j ACCEPT")
	require.ErrorIs(t, f.Check(t.Context(), sample()), core.ErrDrift)
	require.NoError(t, f.Apply(t.Context(), sample()))
	require.NoError(t, f.Check(t.Context(), sample()))
}
