package logs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// file is the log that CRI's callers read. Only whole lines are ever added to
// it; what a full disk cut off is taken away again.
type file struct {
	path string

	mu sync.Mutex
	f  *os.File
}

// Modes of what kubelet reads as root and log collectors by group.
const (
	fileMode   = 0o640
	folderMode = 0o755
)

// open makes the file ready to be added to; it is harmless to repeat.
func (l *file) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		return nil
	}
	f, err := openLog(l.path)
	if err != nil {
		return err
	}
	if err := mend(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("mend %s: %w", l.path, err)
	}
	l.f = f
	return nil
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
}

// reopen begins a new file at the path: the one so far was renamed. With an
// error the old one stays in use, and nothing is lost.
func (l *file) reopen() error {
	f, err := openLog(l.path)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f = f
	return nil
}

func (l *file) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}

// add appends whole lines: all of them or, with an error, none.
func (l *file) add(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return os.ErrClosed
	}
	n, err := l.f.Write(lines)
	if err == nil || n == 0 {
		return err
	}
	st, serr := l.f.Stat()
	if serr == nil {
		serr = l.f.Truncate(st.Size() - int64(n))
	}
	return errors.Join(err, serr)
}

// mend cuts a line that has no end: a process died while it wrote.
func mend(f *os.File) error {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	buf := make([]byte, 64<<10)
	for end := st.Size(); end > 0; {
		from := max(0, end-int64(len(buf)))
		part := buf[:end-from]
		if _, err := f.ReadAt(part, from); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			end = from + int64(i) + 1
			if end == st.Size() {
				return nil
			}
			return f.Truncate(end)
		}
		end = from
	}
	return f.Truncate(0)
}
