// Package netns opens, identifies and enters network namespaces. A Handle is
// an open nsfs file, so it stays valid after the path is gone; identity is the
// kernel's cookie and the boot id, never the path. The package knows nothing of
// links, pods or who keeps a namespace alive.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	// threadSelf is the namespace of the calling thread; /proc/self/ns/net
	// would be that of the process's first thread.
	threadSelf = "/proc/thread-self/ns/net"
	bootIDPath = "/proc/sys/kernel/random/boot_id"
)

// Handle is an open network namespace. It is safe for concurrent use; Close
// ends it.
type Handle struct {
	fd     atomic.Int64 // -1 after Close
	name   string       // for errors: the path it was opened by
	dev    uint64
	ino    uint64
	cookie func() (uint64, error)
}

// Open opens the namespace that path names. Errors wrap core.ErrNetnsGone
// where path is missing or is no network namespace: the empty file that stays
// after a bind mount was undone is the common case.
func Open(path string) (*Handle, error) {
	// Not package os, which offers every file to its poller. O_NONBLOCK: a FIFO
	// put at path must not hang the caller.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("%s does not exist: %w", path, core.ErrNetnsGone)
	case err != nil:
		return nil, fmt.Errorf("open netns: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	h, err := newHandle(fd, path)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open netns %q: %w", path, err)
	}
	return h, nil
}

// Current opens the namespace of the calling thread. Outside of Do that is
// the process's own.
func Current() (*Handle, error) { return Open(threadSelf) }

func newHandle(fd int, name string) (*Handle, error) {
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(fd, &sfs); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	if sfs.Type != unix.NSFS_MAGIC {
		return nil, fmt.Errorf("not a namespace file: %w", core.ErrNetnsGone)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return nil, os.NewSyscallError("ioctl NS_GET_NSTYPE", err)
	}
	if kind != unix.CLONE_NEWNET {
		return nil, fmt.Errorf("a namespace of another kind: %w", core.ErrNetnsGone)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	h := &Handle{name: name, dev: st.Dev, ino: st.Ino}
	h.fd.Store(int64(fd))
	h.cookie = sync.OnceValues(h.readCookie)
	return h, nil
}

// Close releases the file. The namespace lives on while anything else holds it.
func (h *Handle) Close() error {
	if fd := h.fd.Swap(-1); fd >= 0 {
		return os.NewSyscallError("close", unix.Close(int(fd)))
	}
	return os.ErrClosed
}

// Fd is the descriptor for netlink attributes such as IFLA_NET_NS_FD. It is
// valid until Close.
func (h *Handle) Fd() int { return int(h.fd.Load()) }

// String is the path the handle was opened by, for errors and logs.
func (h *Handle) String() string { return h.name }

// Same tells whether both handles are the same namespace.
func (h *Handle) Same(o *Handle) bool { return h.dev == o.dev && h.ino == o.ino }

// processNS is read when the program starts, before any thread can have moved.
// Later /proc/self/ns/net would lie while Do runs on the first thread.
var processNS = func() (st unix.Stat_t) {
	_ = unix.Stat("/proc/self/ns/net", &st) // without /proc nothing here works, and Open says so
	return st
}()

// home is where threads come back to after a visit: opened once, because every
// thread that the runtime hands to a new goroutine is there. The way into
// another namespace is only by visits, whose threads are not handed on before
// they are back. Like processNS it must be read before any thread has moved.
var home, errHome = unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)

// IsHost tells whether h is the namespace this process was started in. A pod
// must never be given that one.
func IsHost(h *Handle) bool { return h.dev == processNS.Dev && h.ino == processNS.Ino }

// Cookie is the kernel's number for the namespace (SO_NETNS_COOKIE): not used
// again within one boot, unlike path and inode. It needs Linux >= 5.14.
func (h *Handle) Cookie() (uint64, error) { return h.cookie() }

func (h *Handle) readCookie() (cookie uint64, err error) {
	if idIsCookie() {
		cookie, err = namespaceID(h.Fd())
	} else {
		err = h.Do(func() error {
			cookie, err = ownCookie()
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("cookie of netns %s: %w", h.name, err)
	}
	return cookie, nil
}

// ownCookie is that of the calling thread's namespace.
func ownCookie() (uint64, error) {
	// Any socket tells it; a unix datagram one is the cheapest.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, errors.New("SO_NETNS_COOKIE needs Linux >= 5.14")
	}
	return cookie, os.NewSyscallError("getsockopt SO_NETNS_COOKIE", err)
}

// nsGetID is NS_GET_ID of linux/nsfs.h: _IOR(0xb7, 13, __u64).
const nsGetID = 2<<30 | 8<<16 | 0xb7<<8 | 13

// namespaceID asks an open namespace file for the namespace's number, without
// a visit (Linux >= 6.18).
func namespaceID(fd int) (id uint64, err error) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), nsGetID, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0, os.NewSyscallError("ioctl NS_GET_ID", errno)
	}
	return id, nil
}

// idIsCookie tells that this kernel's number of a namespace is its cookie,
// which nobody promised: the process's own namespace has to prove it.
var idIsCookie = sync.OnceValue(func() bool {
	id, err := namespaceID(home)
	if err != nil {
		return false
	}
	cookie := uint64(0)
	h := &Handle{name: "of this process"}
	h.fd.Store(int64(home))
	err = h.Do(func() error {
		cookie, err = ownCookie()
		return err
	})
	return err == nil && cookie == id
})

var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile(bootIDPath)
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
})

// BootID is this boot's random id. It is read once: it cannot change under a
// running process.
func BootID() (string, error) { return bootID() }

// Boottime is CLOCK_BOOTTIME: the time since the boot, sleep included, which
// nobody can set.
func Boottime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // fails for unknown clocks only
	return time.Duration(ts.Nano())
}

// Identify says which namespace path names now, in a form that Verify can
// hold against it later. Errors are those of Open and Cookie.
func Identify(path string) (core.Netns, error) {
	h, err := Open(path)
	if err != nil {
		return core.Netns{}, err
	}
	defer func() { _ = h.Close() }()
	cookie, err := h.Cookie()
	if err != nil {
		return core.Netns{}, err
	}
	boot, err := BootID()
	return core.Netns{Path: path, Cookie: cookie, BootID: boot}, err
}

// Verify opens the namespace that n describes. It is core.ErrNetnsGone when
// the path is gone, when it names another namespace now, or when n is of an
// earlier boot. What n leaves empty is not compared.
func Verify(n core.Netns) (*Handle, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if n.BootID != "" && n.BootID != boot {
		return nil, fmt.Errorf("netns %q is of an earlier boot: %w", n.Path, core.ErrNetnsGone)
	}
	h, err := Open(n.Path)
	if err != nil || n.Cookie == 0 {
		return h, err
	}
	cookie, err := h.Cookie()
	if err == nil && cookie != n.Cookie {
		err = fmt.Errorf("netns %q is another one now (cookie %d, was %d): %w", n.Path, cookie, n.Cookie, core.ErrNetnsGone)
	}
	if err != nil {
		_ = h.Close()
		return nil, err
	}
	return h, nil
}

// Do runs fn on a thread that is inside the namespace and returns fn's error.
// fn may open sockets and files and start processes there (a child inherits
// the thread's namespace); a goroutine that fn starts is not inside. A panic of
// fn continues in the caller. A nil Handle is the process's own namespace: fn
// runs where it is.
//
// fn gets a goroutine of its own: should the way back fail, that goroutine ends
// with its thread still locked, and the runtime destroys the thread. The
// caller's thread was never anywhere else.
func (h *Handle) Do(fn func() error) error {
	if h == nil {
		return fn()
	}
	return visiting(func() error {
		if err := unix.Setns(h.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter netns %s: %w", h, os.NewSyscallError("setns", err))
		}
		return nil
	}, fn)
}

// visiting runs fn, as Do does, on a thread that enter has brought into another namespace. The
// thread comes home: one that ended instead could be the process's first, which Go cannot
// end, and would keep that namespace as long as the process lives.
func visiting(enter, fn func() error) error {
	v := visit{enter: enter, fn: fn, done: make(chan struct{})}
	go v.run()
	<-v.done
	switch {
	case v.panicked != nil:
		panic(v.panicked)
	case !v.returned: // fn called runtime.Goexit, as a failing test does
		runtime.Goexit()
	}
	return v.err
}

// visit is one stay of a thread in a namespace.
type visit struct {
	enter    func() error
	fn       func() error
	done     chan struct{}
	err      error
	panicked any
	returned bool
}

func (v *visit) run() {
	defer close(v.done)
	runtime.LockOSThread()
	if errHome != nil {
		runtime.UnlockOSThread()
		v.err, v.returned = os.NewSyscallError("open own netns", errHome), true
		return
	}
	if err := v.enter(); err != nil {
		runtime.UnlockOSThread()
		v.err, v.returned = err, true
		return
	}
	defer func() {
		v.panicked = recover()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	v.err = v.fn()
	v.returned = true
}
