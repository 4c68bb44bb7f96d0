package testbed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

// failDir is what FAIRLEAD_FAIL_DIR says to the node's processes (package fail).
func (n *Node) failDir() string { return filepath.Join(n.Dir, "fail") }

// Crash orders the next process that comes to the crash point to kill itself
// there. An empty point takes the order back.
func (n *Node) Crash(point string) {
	n.t.Helper()
	order := filepath.Join(n.failDir(), "crash")
	if point == "" {
		require.NoError(n.t, os.RemoveAll(order))
		return
	}
	// By rename: a process that looks must not read half a name.
	require.NoError(n.t, os.WriteFile(order+".tmp", []byte(point), 0o600))
	require.NoError(n.t, os.Rename(order+".tmp", order))
}

// CrashPending tells that the order of Crash was not carried out yet.
func (n *Node) CrashPending() bool {
	_, err := os.Stat(filepath.Join(n.failDir(), "crash"))
	return err == nil
}

// CrashTrace lists the crash points that were passed since the last call, in
// order, and starts a new list.
func (n *Node) CrashTrace() []string {
	n.t.Helper()
	name := filepath.Join(n.failDir(), "trace")
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(n.t, err)
	require.NoError(n.t, os.Remove(name))
	return strings.Fields(string(b))
}
