package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Part is what one container mounts of a volume: subPath.
type Part struct {
	Pod       types.UID
	Volume    string
	Container string
	Index     int    // of the mount in the container
	Path      string // below the volume
}

// Part gives a place that holds a part of a volume, which is made as a folder
// where it is missing. Containers may change the volume while it is looked at;
// so what was found is held open and mounted at a place of our own, and nothing
// outside the volume is ever reached. Such a mount does not follow the volume:
// it stays with the file that was found. It may be called again at any time,
// and then looks anew.
func (f *Folder) Part(of Mount, p Part) (string, error) {
	out, err := f.part(of, p)
	if err != nil {
		return "", fmt.Errorf("subPath %s: %w", p.Path, err)
	}
	return out, nil
}

func (f *Folder) part(of Mount, p Part) (string, error) {
	if !filepath.IsLocal(p.Path) {
		return "", errors.New("does not stay in the volume")
	}
	root, err := os.OpenRoot(of.Path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := complete(root, of, filepath.Clean(p.Path)); err != nil {
		return "", err
	}
	found, err := openBelow(of.Path, p.Path)
	if err != nil {
		return "", err
	}
	defer found.Close()
	at := filepath.Join(f.parts(p.Pod), p.Volume, p.Container, strconv.Itoa(p.Index))
	return at, hold(found, at)
}

// complete makes the folders of a subPath where they are missing, with the
// volume's own mode. In a read-only mount a missing one is an error: a volume of
// a ConfigMap or Secret has the files of that object and no others.
func complete(root *os.Root, of Mount, path string) error {
	if _, err := root.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if of.ReadOnly {
		return errors.New("the volume has no such file")
	}
	st, err := root.Stat(".")
	if err != nil {
		return err
	}
	at := ""
	for _, step := range strings.Split(path, "/") {
		at = filepath.Join(at, step)
		switch err := root.Mkdir(at, 0o700); {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return err
		default:
			if err := root.Chmod(at, st.Mode()&(os.ModePerm|os.ModeSetgid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// openBelow opens a path without leaving the folder by any link (openat2(2)).
func openBelow(folder, path string) (*os.File, error) {
	dir, err := os.Open(filepath.Clean(folder))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		return nil, errors.New("a link leads out of the volume")
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// hold mounts what is open at a place, unless that very thing is there.
func hold(what *os.File, at string) error {
	var want unix.Stat_t
	if err := unix.Fstat(int(what.Fd()), &want); err != nil {
		return err
	}
	mounted, err := place(at, want.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return err
	}
	fail.Here("volume.place")
	if mounted {
		var has unix.Stat_t
		if err := unix.Stat(at, &has); err == nil && has.Dev == want.Dev && has.Ino == want.Ino {
			return nil
		}
		// A former container's: the mounts that it has are its own.
		if err := unmount(at); err != nil {
			return err
		}
		if _, err := place(at, want.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
			return err
		}
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", what.Fd()), at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind to %s: %w", at, err)
	}
	fail.Here("volume.held")
	return nil
}

// place makes an empty folder or file to mount on, and tells that something is
// mounted there already.
func place(at string, folder bool) (mounted bool, err error) {
	if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
		return false, err
	}
	st, err := os.Lstat(at)
	if err == nil {
		if mounted, err = isMount(at); err != nil || mounted {
			return mounted, err
		}
		if st.IsDir() == folder {
			return false, nil
		}
		if err := os.Remove(at); err != nil {
			return false, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if folder {
		return false, os.Mkdir(at, 0o750)
	}
	made, err := os.OpenFile(filepath.Clean(at), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return false, err
	}
	return false, made.Close()
}
