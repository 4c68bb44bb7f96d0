package hostlocal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxFolders is how many folders are remembered; past it all are read again.
const maxFolders = 256

// index is what the files of a folder say: by content, which names their owner,
// the addresses. It saves an operation from reading as many files as the network
// has pods, and is good for as long as nobody else has changed the folder.
type index struct {
	owners map[string][]string
	stamp  stamp
}

// stamp is a folder as it was when its lock was given up. The files stay the
// truth: programs and people make and remove them, which changes the folder's
// time of modification. That time is set to a nanosecond of the clock's before
// the lock is given up, for older kernels take theirs from a clock that stands
// still for milliseconds: what somebody else does at once would look the same.
// Whoever sets that time back, as a copy of the folder from a backup does, cannot
// do so with the time of the inode's change. A file's content is written once,
// under the lock.
type stamp struct {
	dev, ino     uint64
	mtime, ctime unix.Timespec
}

func stampOf(fd int) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return stamp{}, os.NewSyscallError("fstat", err)
	}
	return stamp{dev: st.Dev, ino: st.Ino, mtime: st.Mtim, ctime: st.Ctim}, nil
}

// indexes are those of the folders that nobody has open, by path.
type indexes struct {
	mu  sync.Mutex
	all map[string]*index
}

// take gives the index of a folder away, nil where there is none. Who ends
// without putting it back has the folder read again.
func (x *indexes) take(dir string) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.all[dir]
	delete(x.all, dir)
	return i
}

func (x *indexes) put(dir string, i *index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.all) >= maxFolders || x.all == nil {
		x.all = map[string]*index{}
	}
	x.all[dir] = i
}

// load finds out what the files say, by the index where it is good.
func (s *store) load() error {
	now, err := stampOf(int(s.folder.Fd()))
	if err != nil {
		return err
	}
	if s.index = s.indexes.take(s.dir); s.index != nil && s.index.stamp == now {
		return nil
	}
	s.index = &index{owners: map[string][]string{}}
	s.changed = true
	return s.each(func(name, content string) {
		s.index.owners[content] = append(s.index.owners[content], name)
	})
}

// keep puts the index back for the next one, if it says what the folder holds.
func (s *store) keep() {
	if s.index == nil || s.unsure {
		return
	}
	if s.changed {
		fd, now := int(s.folder.Fd()), time.Now()
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(now.UnixNano())}
		if unix.UtimesNanoAt(unix.AT_FDCWD, s.dir, times, 0) != nil {
			return
		}
		var err error
		s.index.stamp, err = stampOf(fd)
		// Another folder, or a file system whose times are coarse.
		if err != nil || s.index.stamp.mtime != times[1] {
			return
		}
	}
	s.indexes.put(s.dir, s.index)
}

// each calls fn for every file of an address, with what it says. One that says
// nothing is removed: who writes a file has the lock, so that this one's writer
// died before its ADD had an answer, or the machine lost its power before what it
// wrote was on the disk, and its pod with it. Nobody else would ever free it.
func (s *store) each(fn func(name, content string)) error {
	entries, err := s.folder.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if !e.Type().IsRegular() || !maybeIP(e.Name()) {
			continue
		}
		data, err := s.read(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		owner := string(bytes.TrimSpace(bytes.Trim(data, "\x00")))
		if owner == "" {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				s.unsure = true // the next one tries again
			}
			continue
		}
		fn(e.Name(), owner)
	}
	return nil
}

// maybeIP passes over the lock and the counters.
func maybeIP(name string) bool {
	return name[0] >= '0' && name[0] <= '9' || strings.Contains(name, ":")
}

// read reads a small file of the folder; what it gives is good until the next
// call. Package os would offer each file to its poller.
func (s *store) read(name string) ([]byte, error) {
	fd, err := unix.Openat(int(s.folder.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(s.dir, name), Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if s.buf == nil {
		s.buf = make([]byte, maxAddressFile)
	}
	n, err := unix.Read(fd, s.buf)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: filepath.Join(s.dir, name), Err: err}
	}
	return s.buf[:n], nil
}
