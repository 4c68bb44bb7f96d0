package hostfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
)

// Limit is how many bytes a file may have that a configuration names.
const Limit = 1 << 20

// Read gives the content of a file that somebody else named: a regular one of at
// most limit bytes. Anything else is refused with code 7, path and reason before
// it is opened: a pipe without a writer holds its reader for ever, a device may
// have no end and acts when it is opened.
func Read(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = fit(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err == nil { // the path may lead elsewhere by now
		err = fit(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit { // it grew, or its size is not told (procfs)
		err = tooLarge(path, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// fit is nil for what may be read.
func fit(path string, info fs.FileInfo, limit int64) error {
	if !info.Mode().IsRegular() {
		return core.Errorf(core.CodeConfig, "%s is %s, not a regular file", path, kindOf(info.Mode()))
	}
	if info.Size() > limit {
		return tooLarge(path, limit)
	}
	return nil
}

func tooLarge(path string, limit int64) error {
	return core.Errorf(core.CodeConfig, "%s is too large: a configuration may have at most %d bytes", path, limit)
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return fmt.Sprintf("something else (%s)", m.Type())
}

// machine is the machine's root.
type machine struct{ fs.FS }

// Machine is the machine's files from its root on, to be read as Read does.
func Machine() fs.FS { return machine{os.DirFS("/")} }

// Open implements fs.FS; a file's content is what ReadFile gives.
func (m machine) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.ErrUnsupported}
}

// Stat implements fs.StatFS.
func (m machine) Stat(name string) (fs.FileInfo, error) { return fs.Stat(m.FS, name) }

// ReadDir implements fs.ReadDirFS.
func (m machine) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(m.FS, name) }

// ReadFile implements fs.ReadFileFS.
func (m machine) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return Read("/"+name, Limit)
}
