package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// side is one contestant, on a node of its own.
type side interface {
	// Node is where it runs.
	Node() *node
	// Call does one CNI command (ADD, DEL, ...) for a pod, by the worker.
	Call(w *worker, command string, p *pod) error
	// Settle returns when everything that earlier calls caused is done.
	Settle() error
}

// worker executes programs on a thread of the node and adds up what they use.
// Their input and output are files in memory: pipes, and goroutines that serve
// them, would cost about as much again as a fork does, on both sides alike, and
// so make every ratio of rates smaller than it is.
type worker struct {
	cpu          time.Duration
	part         []time.Duration // see phase
	aside        time.Duration   // what the call in progress spent on measuring
	in, out, err *os.File
}

// run executes a program to its end, as a runtime does, and returns its
// standard output.
func (w *worker) run(env []string, stdin []byte, argv ...string) ([]byte, error) {
	if err := w.feed(stdin); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	p, err := os.StartProcess(path, argv, &os.ProcAttr{Env: env, Files: []*os.File{w.in, w.out, w.err}})
	if err != nil {
		return nil, err
	}
	state, err := p.Wait()
	if err != nil {
		return nil, err
	}
	w.cpu += usage(state)
	stdout, err := io.ReadAll(io.NewSectionReader(w.out, 0, math.MaxInt64))
	if err == nil && !state.Success() {
		stderr, _ := io.ReadAll(io.NewSectionReader(w.err, 0, math.MaxInt64)) // what there is
		err = fmt.Errorf("%s: %s: %s%s", strings.Join(argv, " "), state, stdout, stderr)
	}
	return stdout, err
}

// feed makes stdin the input of the next program, and its output empty. The
// files of a worker that is not used any more are closed by the collector.
func (w *worker) feed(stdin []byte) error {
	for _, f := range []**os.File{&w.in, &w.out, &w.err} {
		if *f == nil {
			fd, err := unix.MemfdCreate("stdio", unix.MFD_CLOEXEC)
			if err != nil {
				return os.NewSyscallError("memfd_create", err)
			}
			*f = os.NewFile(uintptr(fd), "stdio")
		}
		if err := (*f).Truncate(0); err != nil {
			return err
		}
		if _, err := (*f).Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	_, err := w.in.WriteAt(stdin, 0)
	return err
}

// plugin is a side that is one CNI plugin.
type plugin struct {
	node   *node
	path   string
	conf   []byte
	settle func() error // nil: a call leaves nothing to be done
}

func (p *plugin) Node() *node { return p.node }

func (p *plugin) Settle() error {
	if p.settle == nil {
		return nil
	}
	return p.settle()
}

func (p *plugin) Call(w *worker, command string, pod *pod) error {
	_, err := w.run(environ(command, filepath.Dir(p.path), pod), p.conf, p.path)
	return err
}

// environ is what a runtime sets for a call.
func environ(command, dir string, p *pod) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + command, "CNI_PATH=" + dir, "CNI_IFNAME=eth0",
		"CNI_CONTAINERID=" + p.container, "CNI_NETNS=" + p.netns,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=" + p.name +
			";K8S_POD_INFRA_CONTAINER_ID=" + p.container,
	}
}

// batch does one command for every pod, par at a time. The processor time is
// that of the plugins only.
func batch(s side, command string, pods []*pod, par int) (phase, error) {
	b := &batching{side: s, command: command, start: make(chan struct{}), work: make(chan *pod, len(pods))}
	for _, p := range pods {
		b.work <- p
	}
	close(b.work)
	workers := min(par, len(pods))
	b.ready.Add(workers)
	ended := make(chan error, workers)
	for range workers {
		go func() { ended <- s.Node().inside(b.labour) }()
	}
	b.ready.Wait()
	begun := time.Now()
	close(b.start)
	var errs []error
	for range workers {
		errs = append(errs, <-ended)
	}
	b.sum.wall = time.Since(begun)
	return b.sum, errors.Join(errs...)
}

// logs are the ends of the daemons' logs, for an error message.
func logs(n *node) string {
	var out strings.Builder
	for _, d := range n.daemons {
		if text := tail(d.log); text != "" {
			fmt.Fprintf(&out, "\n%s: %s", d.name, text)
		}
	}
	return out.String()
}

// batching is a batch on its way.
type batching struct {
	side    side
	command string
	ready   sync.WaitGroup
	start   chan struct{}
	work    chan *pod

	mu  sync.Mutex
	sum phase
}

// labour is one worker: it takes pods until there are none, or one fails.
func (b *batching) labour() error {
	b.ready.Done()
	<-b.start
	w := &worker{}
	var took []time.Duration
	var err error
	for p := range b.work {
		w.aside = 0
		begun := time.Now()
		if err = b.side.Call(w, b.command, p); err != nil {
			err = fmt.Errorf("%s %s: %w%s", b.command, p.name, err, logs(b.side.Node()))
			break
		}
		took = append(took, time.Since(begun)-w.aside)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum.join(phase{took: took, part: w.part, cpu: bill{plugin: w.cpu}})
	return err
}

// cycle attaches the pods, par at a time, and detaches them again, delPar at a
// time, and measures both. Work
// that a call leaves behind (in ovs-vswitchd, in a reaper) is waited for and
// counted.
func cycle(s side, pods []*pod, par, delPar int) (out sample, err error) {
	if err := s.Settle(); err != nil { // the barrier before each run
		return out, err
	}
	before, err := takeStock(s.Node())
	if err != nil {
		return out, err
	}
	if err := renew(s, pods); err != nil {
		return out, err
	}
	if out.add, err = counted(s, "ADD", pods, par, s.Settle); err != nil {
		return out, err
	}
	begun := time.Now()
	out.del, err = counted(s, "DEL", pods, delPar, func() error {
		err := before.restored(s.Node())
		out.clean = time.Since(begun)
		err = errors.Join(err, s.Settle())
		out.followed = time.Since(begun)
		return err
	})
	if t, ok := s.(splitter); ok && err == nil {
		err = t.Split(&out)
	}
	return out, err
}

// splitter is a side that knows which part of a run's calls did what its peer does not do.
type splitter interface{ Split(s *sample) error }

// preparer is a side whose pods are more than a namespace.
type preparer interface{ Prepare(pods []*pod) error }

// renew makes new containers of the pods.
func renew(s side, pods []*pod) error {
	s.Node().renew(pods)
	if p, ok := s.(preparer); ok {
		return p.Prepare(pods)
	}
	return nil
}

// counted is batch with the daemons' processor time until after has returned.
func counted(s side, command string, pods []*pod, par int, after func() error) (phase, error) {
	from, err := daemonsCPU(s.Node())
	if err != nil {
		return phase{}, err
	}
	begun := time.Now()
	sum, err := batch(s, command, pods, par)
	if err := errors.Join(err, after()); err != nil {
		return phase{}, err
	}
	sum.done = time.Since(begun)
	to, err := daemonsCPU(s.Node())
	sum.cpu = sum.cpu.plus(to.minus(from))
	return sum, err
}

// stock is how much a node has.
type stock struct{ links, ports int }

func takeStock(n *node) (s stock, err error) {
	if s.links, err = linksOf(n); err != nil {
		return s, err
	}
	s.ports, err = n.ports()
	return s, err
}

// restored waits until the node has no more than before.
func (s stock) restored(n *node) error {
	err := n.inside(func() error {
		return until(func() error {
			now, err := links()
			if err == nil && now > s.links {
				err = fmt.Errorf("%d interfaces are left", now-s.links)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return until(func() error {
		now, err := n.ports()
		if err == nil && now > s.ports {
			err = fmt.Errorf("%d ports are left", now-s.ports)
		}
		return err
	})
}

func linksOf(n *node) (count int, err error) {
	err = n.inside(func() error {
		count, err = links()
		return err
	})
	return count, err
}
