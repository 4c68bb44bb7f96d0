package volume

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fairlead/fairlead/internal/node/object"
)

func pod(volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Volumes: volumes}}
	p.UID, p.Namespace, p.Name = "uid", "default", "web"
	return p
}

func TestEmptyDir(t *testing.T) {
	root := t.TempDir()
	f := New(Config{Root: root, Objects: object.None{}, Log: slog.New(slog.DiscardHandler)})
	limit := resource.MustParse("1Mi")
	p := pod(
		v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		v1.Volume{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}}},
	)
	var had map[string]Mount
	for range 2 { // the second finds the first's
		m, err := f.SetUp(t.Context(), p)
		require.NoError(t, err)
		if had != nil {
			require.Equal(t, had, m)
		}
		had = m
		for _, v := range m {
			require.NoError(t, os.WriteFile(filepath.Join(v.Path, "file"), []byte("kept"), 0o600))
			st, err := os.Stat(v.Path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o777), st.Mode().Perm())
		}
	}
	var st syscall.Statfs_t
	require.NoError(t, syscall.Statfs(had["ram"].Path, &st))
	require.Equal(t, int64(1<<20), int64(st.Blocks)*st.Bsize)
	for range 2 {
		require.NoError(t, f.TearDown("uid"))
	}
	left, err := os.ReadDir(filepath.Join(root, "uid"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		path string
		kind v1.HostPathType
		fail string
	}{
		"anything":         {filepath.Join(dir, "none"), v1.HostPathUnset, ""},
		"a folder":         {dir, v1.HostPathDirectory, ""},
		"no folder":        {file, v1.HostPathDirectory, "is not a folder"},
		"a file":           {file, v1.HostPathFile, ""},
		"no file":          {dir, v1.HostPathFile, "is not a file"},
		"nothing":          {filepath.Join(dir, "none"), v1.HostPathFile, "no such file"},
		"a new folder":     {filepath.Join(dir, "new/er"), v1.HostPathDirectoryOrCreate, ""},
		"a new file":       {filepath.Join(dir, "fresh"), v1.HostPathFileOrCreate, ""},
		"the file again":   {file, v1.HostPathFileOrCreate, ""},
		"no socket":        {file, v1.HostPathSocket, "is not a socket"},
		"a device":         {"/dev/null", v1.HostPathCharDev, ""},
		"no block device":  {"/dev/null", v1.HostPathBlockDev, "is not a block device"},
		"an unknown type":  {dir, "Tape", "is not known"},
		"not a folder yet": {filepath.Join(file, "below"), v1.HostPathDirectoryOrCreate, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: c.path, Type: &c.kind}}})
			m, err := New(Config{Root: t.TempDir()}).SetUp(t.Context(), p)
			if c.fail != "" {
				require.ErrorContains(t, err, c.fail)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.path, m["v"].Path)
		})
	}
}

func TestUnknownKind(t *testing.T) {
	_, err := New(Config{Root: t.TempDir()}).SetUp(t.Context(), pod(v1.Volume{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}))
	require.ErrorContains(t, err, "volume nfs of default/web: this kind of volume is not supported")
}
