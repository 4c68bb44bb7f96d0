package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Names that a volume's own folder has beside those of its files. No path of a
// file may begin with two dots.
const (
	dataLink = "..data"
	dataNext = "..data_tmp"
	stamp    = "..2006_01_02_15_04_05."
)

// writer lays files out as kubelet's AtomicWriter does (pkg/volume/util): each
// file's first step is a link through ..data, which is a link to the folder of
// one version. Switching that one link changes all files at once; who has a
// file open, or mounted, keeps the version he has.
type writer struct {
	dir   string
	group int // -1 is none
}

// filled tells that there has been a complete version.
func (w *writer) filled() bool {
	_, err := os.Stat(filepath.Join(w.dir, dataLink))
	return err == nil
}

// write makes the files the volume's content. It may be killed at any step and
// be called again.
func (w *writer) write(files payload) error {
	for path := range files {
		if !filepath.IsLocal(path) || strings.HasPrefix(path, "..") {
			return fmt.Errorf("file %q: its path does not stay in the volume", path)
		}
	}
	now, err := os.Readlink(filepath.Join(w.dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !w.same(now, files) {
		if now, err = w.version(files); err != nil {
			return err
		}
		fail.Here("volume.written")
		if err := w.point(now); err != nil {
			return err
		}
		fail.Here("volume.switched")
	}
	if err := w.link(files); err != nil {
		return err
	}
	fail.Here("volume.linked")
	return w.sweep(now)
}

// version writes a new one and returns its folder's name.
func (w *writer) version(files payload) (string, error) {
	dir, err := os.MkdirTemp(w.dir, time.Now().UTC().Format(stamp))
	if err != nil {
		return "", err
	}
	if err := own(dir, 0o755, w.group); err != nil {
		return "", err
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := w.file(dir, path, files[path]); err != nil {
			return "", fmt.Errorf("file %s: %w", path, err)
		}
	}
	return filepath.Base(dir), nil
}

func (w *writer) file(dir, path string, f file) error {
	at := dir
	for _, step := range strings.Split(filepath.Dir(filepath.Clean(path)), "/") {
		if step == "." {
			continue
		}
		at = filepath.Join(at, step)
		switch err := os.Mkdir(at, 0o755); {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return err
		default:
			if err := own(at, 0o755, w.group); err != nil {
				return err
			}
		}
	}
	name := filepath.Join(dir, path)
	if err := os.WriteFile(name, f.data, 0o600); err != nil {
		return err
	}
	if f.user >= 0 {
		if err := os.Lchown(name, f.user, -1); err != nil {
			return err
		}
	}
	return own(name, w.mode(f), w.group)
}

// mode of a file: a group that was asked for may read it.
func (w *writer) mode(f file) os.FileMode {
	if w.group >= 0 {
		return f.mode | 0o440
	}
	return f.mode
}

// same tells that a version has these files, and no others.
func (w *writer) same(version string, files payload) bool {
	dir, count := filepath.Join(w.dir, version), 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		path, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		count++
		want, has := files[path]
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !has || !bytes.Equal(data, want.data) || info.Mode().Perm() != w.mode(want) {
			return errors.New("differs")
		}
		return nil
	})
	return err == nil && count == len(files)
}

// point switches to a version.
func (w *writer) point(version string) error {
	next := filepath.Join(w.dir, dataNext)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(w.dir, dataLink))
}

// link makes the names that users see those of the files. New ones come before
// old ones go.
func (w *writer) link(files payload) error {
	names := map[string]bool{}
	for path := range files {
		first, _, _ := strings.Cut(filepath.Clean(path), "/")
		names[first] = true
	}
	for name := range names {
		at, to := filepath.Join(w.dir, name), filepath.Join(dataLink, name)
		if has, err := os.Readlink(at); err == nil && has == to {
			continue
		}
		if err := os.Symlink(to, at); err != nil {
			return err
		}
	}
	all, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Type() == fs.ModeSymlink && !strings.HasPrefix(e.Name(), "..") && !names[e.Name()] {
			if err := os.Remove(filepath.Join(w.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep removes all versions but one, those too that were never finished.
func (w *writer) sweep(keep string) error {
	all, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if name := e.Name(); strings.HasPrefix(name, "..") && name != dataLink && name != keep {
			if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
