package hostlocal

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/lib/fail"
)

const (
	defaultFolder = "/var/lib/cni/networks"
	lockName      = "lock"
	lastPrefix    = "last_reserved_ip."
	separator     = "\r\n" // between container and interface, in the file of an address
	folderMode    = 0o755
	lockMode      = 0o750
	addressMode   = 0o600

	// Another process holds the lock for as long as it reads a folder.
	lockPause = 500 * time.Microsecond
	lockSlow  = 20 * time.Millisecond

	maxAddressFile = 4 << 10 // bytes; more is no file of an address
)

// store is a network's folder, locked. The package `disk` of upstream does the
// same for a process that ends: its lock cannot be given up, and children
// inherit it.
type store struct {
	ctx    context.Context //nolint:containedctx // the allocator hands none on
	dir    string
	folder *os.File
	lock   int
	unlock func()
	taken  []string // the files that Reserve made
	buf    []byte   // of read

	indexes *indexes
	index   *index // nil before load
	changed bool   // the index, since its stamp
	unsure  bool   // a change of the folder failed, or is under way
}

var _ backend.Store = (*store)(nil)

// folder is where a configuration's network keeps its files.
func folder(conf *allocator.IPAMConfig) string {
	if conf.DataDir == "" {
		return filepath.Join(defaultFolder, conf.Name)
	}
	return filepath.Join(conf.DataDir, conf.Name)
}

// open opens and locks a folder. One that is not there is made or, without
// create, nil.
func (p *Plugin) open(ctx context.Context, dir string, create bool) (*store, error) {
	if create {
		if err := os.MkdirAll(dir, folderMode); err != nil {
			return nil, err
		}
	}
	unlock, err := p.folders.Lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	s := &store{ctx: ctx, dir: dir, lock: -1, unlock: unlock, indexes: &p.indexes}
	if s.folder, err = openFolder(dir); err == nil {
		err = s.lockFile()
	}
	if err == nil {
		err = s.load()
	}
	switch {
	case err == nil:
		return s, nil
	case s.index != nil:
		s.index = nil // read in part
	case !create && errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	s.close()
	return nil, err
}

// openFolder opens a directory without offering it to the poller, which takes
// package os five calls.
func openFolder(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// lockFile takes the lock that the programs take, for all that is done with the
// folder. It must not be waited for by a thread that nobody can call off.
func (s *store) lockFile() (err error) {
	s.lock, err = unix.Open(filepath.Join(s.dir, lockName), unix.O_CREAT|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, lockMode)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(s.dir, lockName), Err: err}
	}
	for pause := lockPause; ; pause = min(2*pause, lockSlow) {
		err := unix.Flock(s.lock, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (s *store) close() {
	s.keep()
	if s.lock >= 0 {
		_ = unix.Close(s.lock) // which unlocks: nobody else has this descriptor
	}
	if s.folder != nil {
		_ = s.folder.Close()
	}
	s.unlock()
}

// Lock does nothing: the store is locked from open to close.
func (s *store) Lock() error { return nil }

// Unlock does nothing.
func (s *store) Unlock() error { return nil }

// Close does nothing.
func (s *store) Close() error { return nil }

// Reserve writes the file of an address and that it was the last of its ranges;
// false when it is taken. A file appears with what it says: without that nobody
// would ever free it.
func (s *store) Reserve(id, ifName string, ip net.IP, rangeID string) (bool, error) {
	if s.ctx.Err() != nil { // a range may be large, and full
		return false, s.ctx.Err()
	}
	name, owner := ip.String(), strings.TrimSpace(id)+separator+ifName
	sure := s.change()
	err := create(s.dir, filepath.Join(s.dir, name), owner)
	if errors.Is(err, fs.ErrExist) {
		sure()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.taken = append(s.taken, filepath.Join(s.dir, name))
	s.index.owners[owner] = append(s.index.owners[owner], name)
	fail.Here("hostlocal.reserved")
	err = overwrite(filepath.Join(s.dir, lastPrefix+rangeID), ip.String())
	if err == nil {
		sure()
	}
	return err == nil, err
}

// overwrite gives a small file another content. It is not emptied before: ext4
// has the disk write a file that was (auto_da_alloc), which takes ten times as
// long as all the rest.
func overwrite(name, content string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NONBLOCK, addressMode)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if n, err := unix.Write(fd, []byte(content)); err != nil || n < len(content) {
		return &fs.PathError{Op: "write", Path: name, Err: cmp.Or(err, error(unix.ENOSPC))}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size == int64(len(content)) {
		return os.NewSyscallError("fstat", err)
	}
	return os.NewSyscallError("ftruncate", unix.Ftruncate(fd, int64(len(content))))
}

// change begins a change of the folder: what is not called sure, by the function
// that it gives, leaves no index behind.
func (s *store) change() (sure func()) {
	former := s.unsure
	s.unsure, s.changed = true, true
	return func() { s.unsure = former }
}

// giveBack undoes Reserve.
func (s *store) giveBack() (err error) {
	if len(s.taken) > 0 {
		s.change()
	}
	for _, name := range s.taken {
		if rerr := os.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// create makes a file with its content at once, where the file system can. It is
// not synced: that would take longer than all the rest of an ADD, so that a power
// cut may leave the name alone. Nobody needs to know the owner then. No sandbox
// outlives the power; its record, which was durable before the plugin was called,
// has a DEL at the next start; and whoever opens the folder first, be it that DEL
// or the ADD of a new pod, frees what says nothing (each).
func create(dir, name, content string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, addressMode)
	if err != nil {
		return createStepwise(name, content)
	}
	defer func() { _ = unix.Close(fd) }()
	if n, err := unix.Write(fd, []byte(content)); err != nil || n < len(content) {
		return &fs.PathError{Op: "write", Path: name, Err: cmp.Or(err, error(unix.ENOSPC))}
	}
	err = unix.Linkat(fd, "", unix.AT_FDCWD, name, unix.AT_EMPTY_PATH)
	if err == nil || errors.Is(err, unix.EEXIST) {
		return err
	}
	return createStepwise(name, content) // before Linux 6.10 it takes CAP_DAC_READ_SEARCH
}

// createStepwise is create for file systems without nameless files.
func createStepwise(name, content string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_EXCL|os.O_CREATE, addressMode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// LastReservedIP is the address that was given out last of a set of ranges.
func (s *store) LastReservedIP(rangeID string) (net.IP, error) {
	data, err := s.read(lastPrefix + rangeID)
	if err != nil {
		return nil, fs.ErrNotExist // it begins anew then, which costs nothing but the order
	}
	return net.ParseIP(string(data)), nil
}

// GetByID lists the addresses of an attachment, also those of the time when
// files named the container alone.
func (s *store) GetByID(id, ifName string) (ips []net.IP) {
	for _, owner := range owners(id, ifName) {
		for _, name := range s.index.owners[owner] {
			if ip := net.ParseIP(name); ip != nil {
				ips = append(ips, ip)
			}
		}
	}
	return ips
}

// owners are what the file of an attachment's address may say: what is written
// today, and what was when files named the container alone.
func owners(id, ifName string) [2]string {
	id = strings.TrimSpace(id)
	return [2]string{id + separator + ifName, id}
}

// ReleaseByID frees the addresses of an attachment; if it has none, those of
// the time when files named the container alone.
func (s *store) ReleaseByID(id, ifName string) (err error) {
	for _, owner := range owners(id, ifName) {
		names := s.index.owners[owner]
		if len(names) == 0 {
			continue
		}
		sure := s.change()
		for _, name := range names {
			if rerr := os.Remove(filepath.Join(s.dir, name)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
			fail.Here("hostlocal.released")
		}
		delete(s.index.owners, owner)
		if err == nil {
			sure()
		}
		return err
	}
	return nil
}
