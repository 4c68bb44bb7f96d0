package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// node is a machine of its own for one side: a network and a mount namespace
// with /run in memory, /var/lib and /var/log on disk. A thread of this process keeps the
// namespaces; the daemons die with that thread, so nothing outlives the
// benchmark, however it ends.
type node struct {
	dir      string // on disk
	mnt, net int    // open namespace files
	calls    chan func()
	daemons  []*daemon
	pods     []*pod
	serial   int // container ids given so far
	ovs      bool
}

// pod is a network namespace that is attached and detached many times; each
// ADD is of a new container.
type pod struct {
	index     int
	name      string
	netns     string
	container string
}

// newNode makes the namespaces; dir is made and removed with the node.
func newNode(dir string) (*node, error) { return makeNode(dir, (*node).unshare) }

// newGuest is a node in the namespaces that this process has: a machine that is the
// benchmark's own, as one in QEMU.
func newGuest(dir string) (*node, error) { return makeNode(dir, (*node).hold) }

// makeNode makes a node; enter runs on its thread, and opens the namespaces.
func makeNode(dir string, enter func(*node) error) (*node, error) {
	n := &node{dir: dir, calls: make(chan func()), mnt: -1, net: -1}
	for _, d := range []string{"lib", "log", "cgroup"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is the node's
		made <- enter(n)
		for f := range n.calls {
			f()
		}
	}()
	err := <-made
	if err == nil {
		err = n.command("ip", "link", "set", "lo", "up")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make node: %w", err), n.close())
	}
	return n, nil
}

// unshare gives the calling thread the node's namespaces.
func (n *node) unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return err
	}
	mounts := []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"bench", "/run", "tmpfs", 0},
		{filepath.Join(n.dir, "lib"), "/var/lib", "", unix.MS_BIND},
		{filepath.Join(n.dir, "log"), "/var/log", "", unix.MS_BIND},
		{"/sys/fs/cgroup", filepath.Join(n.dir, "cgroup"), "", unix.MS_BIND | unix.MS_REC},
		{"bench", "/sys", "sysfs", 0}, // shows the interfaces of the new namespace
		{filepath.Join(n.dir, "cgroup"), "/sys/fs/cgroup", "", unix.MS_MOVE},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return n.hold()
}

// hold opens the namespaces of the calling thread.
func (n *node) hold() (err error) {
	for _, d := range []string{"/run/netns", "/run/openvswitch"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if n.mnt, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	n.net, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return err
}

// inside runs f on a new thread in the node's namespaces; processes that f
// starts are there too. The thread ends with f.
func (n *node) inside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- n.entered(f)
	}()
	return <-done
}

func (n *node) entered(f func() error) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(n.mnt, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	if err := unix.Setns(n.net, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return f()
}

// command runs a command in the node to its end.
func (n *node) command(argv ...string) error {
	_, err := n.output(argv...)
	return err
}

// output runs a command in the node and returns its standard output.
func (n *node) output(argv ...string) (out string, err error) {
	err = n.inside(func() error {
		b, err := exec.Command(argv[0], argv[1:]...).Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, exit.Stderr)
		}
		out = string(b)
		return err
	})
	return out, err
}

// morePods makes network namespaces until there are count pods.
func (n *node) morePods(count int) error {
	for len(n.pods) < count {
		p := &pod{index: len(n.pods), name: fmt.Sprintf("pod-%d", len(n.pods))}
		p.netns = "/run/netns/" + p.name
		if err := n.inside(p.make); err != nil {
			return fmt.Errorf("make %s: %w", p.netns, err)
		}
		n.pods = append(n.pods, p)
	}
	return nil
}

// make runs on a thread of its own, which loses its network namespace.
func (p *pod) make() error {
	if err := os.WriteFile(p.netns, nil, 0o444); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	// Every side gives IPv4 only. Left on, each pod's neighbour discovery would
	// be flooded to all ports: by ovs-vswitchd, whose time is counted, and by a
	// Linux bridge in soft interrupts, whose time is not.
	for _, scope := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return unix.Mount("/proc/thread-self/ns/net", p.netns, "", unix.MS_BIND, "")
}

// renew gives the pods new container ids.
func (n *node) renew(pods []*pod) {
	for _, p := range pods {
		n.serial++
		p.container = fmt.Sprintf("%08x%056x", n.serial, n.serial) // names of ports begin with 8 or 12 of these
	}
}

// links counts the network interfaces of the node. Call it inside.
func links() (int, error) {
	entries, err := os.ReadDir("/sys/class/net")
	return len(entries), err
}

// daemon is a process that lives until it is stopped or its node ends.
type daemon struct {
	name, log string
	cmd       *exec.Cmd
	ended     chan struct{}
}

// start runs argv in the node; its output goes to a file of the node.
func (n *node) start(argv ...string) (*daemon, error) {
	return n.startAs(filepath.Base(argv[0]), argv...)
}

// startAs is start for what is to be known by another name than its program's.
func (n *node) startAs(name string, argv ...string) (*daemon, error) {
	d := &daemon{name: name, ended: make(chan struct{})}
	d.log = filepath.Join(n.dir, fmt.Sprintf("%s-%d.log", d.name, len(n.daemons)))
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(argv[0], argv[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	n.calls <- func() { started <- d.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", d.name, err)
	}
	n.daemons = append(n.daemons, d)
	go func() {
		_ = d.cmd.Wait() // how it ended matters to nobody: it is killed
		close(d.ended)
	}()
	return d, nil
}

// living are the daemons that have not ended.
func (n *node) living() (out []*daemon) {
	for _, d := range n.daemons {
		select {
		case <-d.ended:
		default:
			out = append(out, d)
		}
	}
	return out
}

// pids are those of the living daemons.
func (n *node) pids() (out []int) {
	for _, d := range n.living() {
		out = append(out, d.pid())
	}
	return out
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// kill is SIGKILL, and waits for the end.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

// await repeats look until it succeeds; an ended daemon is an error with the
// end of its log.
func (d *daemon) await(look func() error) error { return d.awaitWithin(patience, look) }

func (d *daemon) awaitWithin(limit time.Duration, look func() error) error {
	return within(limit, func() error {
		select {
		case <-d.ended:
			return &hopeless{fmt.Errorf("%s ended: %s", d.name, tail(d.log))}
		default:
			return look()
		}
	})
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// hopeless is an error that waiting does not cure.
type hopeless struct{ error }

// until repeats look every 2 ms until it succeeds, at most for patience.
func until(look func() error) error { return within(patience, look) }

// within is until with another limit.
func within(limit time.Duration, look func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := look()
		if err == nil {
			return nil
		}
		if h := (*hopeless)(nil); errors.As(err, &h) {
			return h.error
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// close ends the daemons and the node.
func (n *node) close() error {
	for _, d := range n.daemons {
		d.kill()
	}
	close(n.calls)
	for _, fd := range []int{n.mnt, n.net} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return os.RemoveAll(n.dir)
}
