// Package hostfile changes files of the node that others read at any time: a
// runtime's configurations, plugin binaries. A file is there whole or not at
// all, also after a power loss. It knows no formats.
package hostfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write puts a file in place by rename, durably. The temporary file beside it
// has a name that no runtime takes for a configuration or a plugin.
func Write(path string, content []byte, mode fs.FileMode) error {
	if err := replace(path, bytes.NewReader(content), mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Copy is Write with the content of another file.
func Copy(from, to string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", to, err)
	}
	defer src.Close()
	if err := replace(to, src, mode); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}

// Announce is Write for a file that a runtime watches: the same bytes are
// written once more in place, which every runtime hears. containerd (2.3) passes
// over whatever appears in the folder: of a rename inside it, it hears by the
// old name's event alone, and of one from elsewhere not at all. Neither step
// leaves a moment without the whole content.
func Announce(path string, content []byte, mode fs.FileMode) error {
	if err := Write(path, content, mode); err != nil {
		return err
	}
	return Touch(path, content)
}

// Touch writes the content that a file has already into it once more, for those
// who watch it. The file is not truncated: readers see it whole at any time.
func Touch(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write %s again: %w", path, err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s again: %w", path, err)
	}
	return nil
}

// Remove removes a file, durably. One that is not there is success.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func replace(path string, from io.Reader, mode fs.FileMode) error {
	// Hidden, and without the suffix of a configuration.
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // nothing after the rename
	_, err = io.Copy(tmp, from)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
