package loop

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneNodeOfAFolder: a second one would end the first one's pods.
func TestOneNodeOfAFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	lock, err := lockDir(dir)
	require.NoError(t, err)
	_, err = lockDir(dir)
	require.EqualError(t, err, "--root-dir: another process uses "+dir)
	lock.Release()
	lock, err = lockDir(dir)
	require.NoError(t, err)
	lock.Release()
	_, err = lockDir("/dev/null")
	require.ErrorContains(t, err, "--root-dir: ")
}
