package central_test

import "github.com/stretchr/testify/require"

// joined has the cluster joined to others, of which one has a chassis: each member runs
// ovn-ic then.
func (s *site) joined(first *member) {
	s.t.Helper()
	_, err := first.ctl("ovn-nbctl", "nb", "set", "nb_global", ".", "external_ids:fairlead-ic-nb=tcp:127.0.0.1:1", "external_ids:fairlead-ic-sb=tcp:127.0.0.1:2")
	require.NoError(s.t, err)
	for _, m := range s.members {
		s.until(func() error { _, err := m.Try("pgrep", "-f", "^ovn-ic .*"+m.Dir); return err }, "ovn-ic runs")
	}
	_, err = first.ctl("ovn-sbctl", "sb", "chassis-add", s.ns+"-far", "geneve", "192.0.2.12", "--", "set", "Chassis", s.ns+"-far", "other_config:is-remote=true")
	require.NoError(s.t, err)
}
