package ovn_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestInterconnection: a database is joined and parts, and nothing of it is left; what others
// wrote beside it stays, and so does what is so already.
func TestInterconnection(t *testing.T) {
	t.Parallel()
	nb := bed.NewNB(t, testbed.Bare(t))
	nb.Nbctl("init", "--", "set", "NB_Global", ".", "options:other=1", "name=his", "options:ic-route-adv=true")
	c := leader(t, nb.NB(), "a")
	is := func(column, want string) {
		t.Helper()
		require.Equal(t, want, nb.Get("NB_Global", ".", column), column)
	}
	require.NoError(t, c.Interconnect(t.Context(), ovn.Interconnection{}))
	is("name", "his")
	is("options:ic-route-adv", "true") // somebody joined it by hand

	at := ovn.Interconnection{NB: "tcp:192.0.2.1:6645", SB: "tcp:192.0.2.1:6646", Zone: "az1", Routes: true, Deny: []string{"b", "a", "b"}}
	require.NoError(t, c.Interconnect(t.Context(), at))
	before := transactions(t, nb)
	require.NoError(t, c.Interconnect(t.Context(), at))
	require.Equal(t, before, transactions(t, nb), "it is so already")
	is("name", "az1")
	is("options:ic-route-blacklist", "a,b")
	is("options:ic-route-adv", "true")
	at.Routes, at.Deny = false, nil
	require.NoError(t, c.Interconnect(t.Context(), at))
	is("options:ic-route-adv", "false")
	is("options:ic-route-learn", "false")
	require.Eventually(t, func() bool {
		have, err := c.Interconnection()
		return err == nil && have.Zone == "az1" && have.NB == at.NB && have.SB == at.SB && !have.Parting
	}, patient, 5*time.Millisecond)

	at.Parting = true
	require.NoError(t, c.Interconnect(t.Context(), at))
	is("name", "")
	is("external_ids:fairlead-ic-zone", "az1")
	require.NoError(t, c.Interconnect(t.Context(), ovn.Interconnection{}))
	require.NotContains(t, nb.Nbctl("list", "NB_Global"), "ic-")
	is("options:other", "1")
}
