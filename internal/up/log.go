package up

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// LogSize is how long the log of a process becomes, in bytes.
const LogSize = 10 << 20

// Log appends to a file of bounded size: what would make it longer begins it
// anew, and the file before is FILE.1. It is safe for concurrent use.
type Log struct {
	path   string
	most   int64    // bytes
	beside *os.File // may be open on the same file

	mu   sync.Mutex
	file *os.File
	size int64 // bytes, as far as this process knows
}

// OpenLog opens a log that becomes most bytes long. If beside is open on the same
// file it goes on with it: it is the standard error of a detached process, on
// which the Go runtime tells why it ended.
func OpenLog(path string, most int64, beside *os.File) (*Log, error) {
	l := &Log{path: path, most: most, beside: beside}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write writes all of b into one file.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := int64(len(b))
	if l.size+more > l.most {
		if err := l.turn(more); err != nil {
			// The line counts more than the bound, and another try is due after as much
			// again. The file itself is where it can be told.
			l.size = 0
			slog.New(slog.NewJSONHandler(l.file, nil)).Error("log is longer than it should be", "part", "up", "err", err)
		}
	}
	l.size += more
	return l.file.Write(b)
}

// turn begins the file anew, unless it has room for more bytes: others write to
// it too, or cut it off. A file that somebody has moved is left to them, and what
// is no plain file has no bound.
func (l *Log) turn(more int64) error {
	was, err := l.file.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !now.Mode().IsRegular():
		l.size = 0
		return nil
	case os.SameFile(was, now):
		if l.size = was.Size(); l.size == 0 || l.size+more <= l.most {
			return nil
		}
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
	}
	old := l.file
	if err := l.open(); err != nil {
		return err // nothing has changed but the old file's name
	}
	return errors.Join(l.follow(was), old.Close())
}

// follow leads beside to the new file, if it was open on the old one.
func (l *Log) follow(old fs.FileInfo) error {
	if its, err := l.beside.Stat(); err != nil || !os.SameFile(its, old) {
		return err
	}
	return unix.Dup3(int(l.file.Fd()), int(l.beside.Fd()), 0)
}

// Close ends the writing.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
