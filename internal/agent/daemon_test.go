package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMissingObjects: the reason says the folder and each word once.
func TestMissingObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := New(Config{Objects: dir, StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	require.EqualError(t, err, "read objects: open "+dir+": no such file or directory")
}
