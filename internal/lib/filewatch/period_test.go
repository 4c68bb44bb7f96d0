package filewatch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPeriod: what no event can tell of is looked at more often.
func TestPeriod(t *testing.T) {
	above := filepath.Join(t.TempDir(), "above")
	path := filepath.Join(above, "path")
	followed := path
	cfg := Config{Paths: func() []string { return []string{followed} }, Period: time.Hour, Log: slog.New(slog.DiscardHandler)}
	w := newWatch(cfg)
	defer w.close()
	aimed := func() time.Duration {
		w.aim()
		return w.period()
	}
	require.Equal(t, blind, aimed(), "nobody tells that the folder above comes")
	require.NoError(t, os.Mkdir(above, 0o755))
	require.Equal(t, time.Hour, aimed())
	require.NoError(t, os.Mkdir(path, 0o755))
	require.Equal(t, time.Hour, aimed())
	require.NoError(t, os.RemoveAll(above))
	require.Equal(t, blind, aimed())
	followed = filepath.Dir(above)
	require.Equal(t, time.Hour, aimed(), "what is followed no more counts no more")
	require.Equal(t, blind, (&watch{cfg: cfg}).period(), "without inotify")
}
