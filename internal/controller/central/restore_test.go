package central_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/ovn/raft"
)

// restored proves that the databases go on with what one of three members has: of the
// others one lost its disk, and one comes back when it is too late.
func (s *site) restored() {
	t := s.t
	t.Helper()
	last := s.members[2]
	last.start()

	// What cannot be restored takes nothing, however often it is tried.
	home := filepath.Join(last.Dir, dir)
	beside := func() []string {
		found, err := filepath.Glob(filepath.Join(home, "nb.db*"))
		require.NoError(t, err)
		return slices.DeleteFunc(found, func(name string) bool { return strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".first") })
	}
	was, due := beside(), filepath.Join(home, fairlead.RestoreDir)
	require.NoError(t, os.Mkdir(due, 0o700)) // as one is whose removal is under way
	last.says(due + "/nb.db: no such file")
	require.NoError(t, os.Remove(due))
	require.NoError(t, os.Mkdir(due+"-test", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(due+"-test", "nb.db"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(due+"-test", "sb.db"), []byte("junk"), 0o600))
	require.NoError(t, os.Rename(due+"-test", due))
	last.says("sb.db: unexpected file format")
	time.Sleep(3 * time.Second) // it tries again each second
	require.Equal(t, was, beside())
	require.NoError(t, os.RemoveAll(due))

	file := filepath.Join(last.Dir, "backup.tar")
	s.until(func() error {
		_, err := last.TryFairlead("ovn", "backup", "--central-run-dir", filepath.Join(last.Dir, run), file)
		return err
	}, "backup without a leader")
	last.Fairlead("ovn", "restore", "--central-dir", filepath.Join(last.Dir, dir), last.older(file))
	last.ready()
	for _, name := range []string{"OVN_Northbound", "OVN_Southbound"} {
		_, err := time.Parse(time.RFC3339, s.noted(name+"-anew"))
		require.NoError(t, err)
	}
	last.schemas(installed, installed)
	s.members[1].start()
	for _, m := range s.members {
		m.ready()
		for _, db := range []string{"nb", "sb"} {
			s.until(func() error {
				if v := m.view(db); len(v.Servers) != 3 || slices.ContainsFunc(v.Servers, func(o raft.Server) bool { return !o.Self && !o.Connected }) {
					return fmt.Errorf("%+v", v)
				}
				return nil
			}, "three members again")
		}
		have, err := m.ctl("ovn-nbctl", "nb", "ls-list")
		require.NoError(t, err)
		require.Contains(t, have, "before")
	}
}

// note writes values of keys into the ConfigMap that says which clusters have begun: key, value, ….
func (s *site) note(pairs ...string) {
	s.t.Helper()
	data := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		data[pair[0]] = pair[1]
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	require.NoError(s.t, err)
	_, err = s.c.TryKubectl("", "patch", "configmap", "-n", s.ns, fairlead.CentralName, "--type=merge", "-p", string(patch))
	require.NoError(s.t, err)
}

// noted is a value of that ConfigMap.
func (s *site) noted(key string) string {
	s.t.Helper()
	return s.c.Kubectl("get", "configmap", "-n", s.ns, fairlead.CentralName, "-o", "jsonpath={.data."+key+"}")
}
