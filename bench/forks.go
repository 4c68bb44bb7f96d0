package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// The process events connector (Documentation/driver-api/connector.rst,
// linux/cn_proc.h): the kernel tells of every fork on the machine.
const (
	cnProc       = 1 // both CN_IDX_PROC and CN_VAL_PROC
	mcastListen  = 1
	eventFork    = 0x00000001
	eventExec    = 0x00000002
	eventExit    = 0x80000000
	msgHeaders   = unix.SizeofNlMsghdr + 20 // netlink and connector headers
	eventHeader  = 16                       // what, cpu, time
	listenLength = msgHeaders + 4
)

// forks counts the processes that a family starts: exactly, for the kernel
// reports each one; threads are not counted.
type forks struct{ fd int }

// listen opens the connector. It works only in the machine's first network
// and pid namespaces.
func listen() (*forks, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("process events: %w", err)
	}
	f := &forks{fd}
	if err := f.subscribe(); err != nil {
		return nil, errors.Join(fmt.Errorf("process events: %w", err), f.close())
	}
	return f, nil
}

func (f *forks) subscribe() error {
	// Large enough for minutes of a busy machine; an overrun is an error.
	if err := unix.SetsockoptInt(f.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(f.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Bind(f.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: cnProc}); err != nil {
		return err
	}
	le := binary.LittleEndian
	b := make([]byte, listenLength)
	le.PutUint32(b, listenLength)
	le.PutUint16(b[4:], unix.NLMSG_DONE)
	le.PutUint32(b[unix.SizeofNlMsghdr:], cnProc)
	le.PutUint32(b[unix.SizeofNlMsghdr+4:], cnProc)
	le.PutUint16(b[unix.SizeofNlMsghdr+16:], 4)
	le.PutUint32(b[msgHeaders:], mcastListen)
	return unix.Sendto(f.fd, b, 0, kernel)
}

func (f *forks) close() error { return unix.Close(f.fd) }

// family is what count found.
type family struct {
	forks    int // processes that were made
	programs int // of those, the ones that executed a program
}

// census counts one family while it grows.
type census struct {
	daemons map[int]bool
	plugins map[int]bool // started by this very process: not counted themselves
	others  map[int]bool // started by daemons, plugins or each other; true once they executed a program
	family  family
}

// count reads all events until now. It counts what the daemons, and the
// plugins that this process started, started in turn. (A Go program's first
// exec forks twice: the runtime tries pidfds with a child that runs nothing.)
func (f *forks) count(daemons []int) (family, error) {
	marker := exec.Command("true")
	if err := marker.Run(); err != nil {
		return family{}, err
	}
	c := census{daemons: map[int]bool{}, plugins: map[int]bool{}, others: map[int]bool{}}
	for _, pid := range daemons {
		c.daemons[pid] = true
	}
	mark := marker.Process.Pid
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(f.fd, buf, 0)
		if err != nil {
			return family{}, fmt.Errorf("process events: %w", err)
		}
		e, ok := parse(buf[:n])
		if ok && e.what == eventExit && e.pid == mark {
			return c.family, nil
		}
		if ok {
			c.see(e)
		}
	}
}

func (c *census) see(e event) {
	executed, other := c.others[e.parent]
	switch {
	case e.what == eventExit: // a stranger may have its number next
		delete(c.plugins, e.pid)
		delete(c.others, e.pid)
	case e.what == eventExec && other && !executed:
		c.others[e.parent] = true
		c.family.programs++
	case e.what != eventFork || !e.process:
	case e.parent == os.Getpid():
		c.plugins[e.child] = true
	case other, c.daemons[e.parent], c.plugins[e.parent]:
		c.others[e.child] = false
		c.family.forks++
	}
}

// event is what matters of struct proc_event.
type event struct {
	what          uint32
	pid           int // thread of an exit
	parent, child int // process (thread group) ids of a fork; parent also of an exec
	process       bool
}

func parse(b []byte) (event, bool) {
	if len(b) < msgHeaders+eventHeader+16 {
		return event{}, false
	}
	le := binary.LittleEndian
	b = b[msgHeaders:]
	e := event{what: le.Uint32(b)}
	id := func(i int) int { return int(le.Uint32(b[eventHeader+4*i:])) }
	switch e.what {
	case eventExit: // pid, tgid
		e.pid = id(0)
	case eventExec: // pid, tgid
		e.parent = id(1)
	case eventFork: // parent pid, parent tgid, child pid, child tgid
		e.parent, e.child, e.process = id(1), id(3), id(2) == id(3)
	}
	return e, true
}
