package hostlocal_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
)

func command(t *testing.T, argv ...string) {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", argv, out)
}

// mounted mounts an image of a file system.
func mounted(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	command(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { command(t, "umount", dir) })
	return dir
}

// TestPowerCut: an ext4 that lost its power while addresses were given out, which
// is a copy of its device, has files without content. DEL and GC free them, and
// none that has an owner.
func TestPowerCut(t *testing.T) {
	const range16 = `"ranges":[[{"subnet":"10.1.0.0/28"}]]`
	for _, op := range []core.Op{core.Del, core.GC} {
		t.Run(string(op), func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "disk")
			command(t, "truncate", "-s", "32M", image)
			command(t, "mkfs.ext4", "-q", image)
			disk := mounted(t, image)
			before := inside(hostlocal.New(), disk)
			add := func(s side, id string) error {
				_, err := s.run(core.Add, s.call(conf("1.1.0", range16, ""), id, ""))
				return err
			}
			require.NoError(t, add(before, "safe"))
			command(t, "sync", "-f", disk)
			for i := range 11 {
				require.NoError(t, add(before, fmt.Sprintf("c%d", i)))
			}
			// Somebody else's fsync(2) puts the names on the disk, and not what the files say.
			other, err := os.Create(filepath.Join(disk, "other"))
			require.NoError(t, err)
			require.NoError(t, other.Sync())
			require.NoError(t, other.Close())
			after := filepath.Join(t.TempDir(), "copy")
			command(t, "cp", "--sparse=always", image, after)

			again := mounted(t, after)
			folder := filepath.Join(again, "net")
			require.NotEmpty(t, hollow(t, folder), "the power cut left files without content")
			// As a program does that dies after it made the file; and as the blocks
			// are of a file whose length alone came to the disk.
			require.NoError(t, os.WriteFile(filepath.Join(folder, "10.1.0.14"), make([]byte, 20), 0o600))
			s := inside(hostlocal.New(), again)
			_, err = s.run(op, s.call(conf("1.1.0", range16, ""), "c0", ""))
			require.NoError(t, err)
			require.Empty(t, hollow(t, folder))
			require.FileExists(t, filepath.Join(folder, "10.1.0.2"), "its owner is known")
			for i := range 11 { // what came to the disk whole is freed by its own DEL
				_, err := s.run(core.Del, s.call(conf("1.1.0", range16, ""), fmt.Sprintf("c%d", i), ""))
				require.NoError(t, err)
			}
			for i := range 12 { // the pool is whole again but for one
				require.NoError(t, add(s, fmt.Sprintf("new%d", i)))
			}
			require.Error(t, add(s, "one too many"))
		})
	}
}

// hollow are the addresses whose files say nothing.
func hollow(t *testing.T, folder string) (out []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "10.*"))
	require.NoError(t, err)
	for _, name := range names {
		info, err := os.Stat(name)
		require.NoError(t, err)
		if raw, err := os.ReadFile(name); err == nil && (info.Size() == 0 || raw[0] == 0) {
			out = append(out, filepath.Base(name))
		}
	}
	return out
}
