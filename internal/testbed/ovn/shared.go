package ovn

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// Shared are the interconnection databases of several clusters, on a node of their own.
type Shared struct {
	*testbed.Node
	t testing.TB
}

// sharedDBs are the two, as OVN's programs know them.
var sharedDBs = []db{
	{"ic-nb", "OVN_IC_Northbound", 6645},
	{"ic-sb", "OVN_IC_Southbound", 6646},
}

// NewShared starts both, new, for connections by tcp at an address of the node ("" for none)
// and by their sockets.
func NewShared(t testing.TB, n *testbed.Node, addr string) *Shared {
	t.Helper()
	s := &Shared{Node: n, t: t}
	require.NoError(t, os.MkdirAll(filepath.Join(n.Dir, rundir), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(n.Dir, "disk/ovn"), 0o755))
	for _, d := range sharedDBs {
		file := filepath.Join(n.Dir, "disk/ovn", d.short+".db")
		n.Run("ovsdb-tool", "create", file, "/usr/share/ovn/ovn-"+d.short+".ovsschema")
		argv := []string{"ovsdb-server", file, "--remote=p" + s.endpoint(d), "--unixctl=" + filepath.Join(n.Dir, ctl(d.short))}
		if addr != "" {
			argv = append(argv, fmt.Sprintf("--remote=ptcp:%d:%s", d.port, bracketed(addr)))
		}
		n.Start(d.short, argv...)
		eventually(t, d.name+" serves", func() error {
			_, err := n.Try("ovsdb-client", "--timeout=5", "get-schema-version", s.endpoint(d), d.name)
			return err
		})
	}
	return s
}

func (s *Shared) endpoint(d db) string {
	return "unix:" + filepath.Join(s.Dir, rundir, d.short+".sock")
}

// NB and SB are the databases' endpoints for this process and for the node's.
func (s *Shared) NB() string { return s.endpoint(sharedDBs[0]) }

// SB is said at NB.
func (s *Shared) SB() string { return s.endpoint(sharedDBs[1]) }

// Sbctl runs ovn-ic-sbctl.
func (s *Shared) Sbctl(args ...string) string {
	s.t.Helper()
	return s.Run(append([]string{"ovn-ic-sbctl", "--timeout=20", "--db=" + s.SB()}, args...)...)
}

// Nbctl runs ovn-ic-nbctl.
func (s *Shared) Nbctl(args ...string) string {
	s.t.Helper()
	return s.Run(append([]string{"ovn-ic-nbctl", "--timeout=20", "--db=" + s.NB()}, args...)...)
}
