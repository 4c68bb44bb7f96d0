package nodeagent

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/server"
	"github.com/fairlead/fairlead/internal/journal"
)

// TestStartHints: an agent that does not start says what to do.
func TestStartHints(t *testing.T) {
	objects := filepath.Join(t.TempDir(), "objects")
	for want, err := range map[string]error{
		"stop it":             fmt.Errorf("journal: %w", journal.ErrBusy),
		"--socket":            fmt.Errorf("listen /s: %w", server.ErrServed),
		"mkdir -p " + objects: fmt.Errorf("objects: %w", fs.ErrNotExist),
		"fairlead doctor":     errors.New("no such thing"),
	} {
		require.Contains(t, startHint(objects, err), want)
	}
}
