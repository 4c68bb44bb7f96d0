package nodeagent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/server"
)

// TestMissingObjects: the reason says the folder and each word once.
func TestMissingObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := newDaemon(agentOptions{objects: dir, stateDir: t.TempDir()}, slog.New(slog.DiscardHandler))
	require.EqualError(t, err, "read objects: open "+dir+": no such file or directory")
}

// TestStartHints: an agent that does not start says what to do.
func TestStartHints(t *testing.T) {
	o := agentOptions{objects: filepath.Join(t.TempDir(), "objects")}
	for want, err := range map[string]error{
		"stop it":               fmt.Errorf("journal: %w", journal.ErrBusy),
		"--socket":              fmt.Errorf("listen /s: %w", server.ErrServed),
		"mkdir -p " + o.objects: fmt.Errorf("objects: %w", fs.ErrNotExist),
		"fairlead doctor":       errors.New("no such thing"),
	} {
		require.Contains(t, o.startHint(err), want)
	}
}
