// Command cluster is `make cluster`: a real Kubernetes cluster with Fairlead on
// this machine, in the foreground, for a developer to look around in. Fairlead
// comes into it as into any other, by `fairlead install` with the chart's
// values. It is made of what tests are made of and ends as they do: Ctrl-C
// removes everything, and what is left over is an error.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// mostNodes keeps a slip of the finger from filling the machine.
const mostNodes = 9

func main() {
	nodes := flag.Int("nodes", 1, "machines of the cluster")
	flag.Parse()
	if *nodes < 1 || *nodes > mostNodes || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "cluster: NODES must be a number from 1 to %d\n", mostNodes)
		os.Exit(2)
	}
	os.Exit(run(*nodes, extra{}))
}

// run makes a cluster and keeps it until a signal comes.
func run(nodes int, more extra) int {
	p := newProgress()
	home, err := newHome(p.say)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	f := &foreground{}
	failed := f.run(func() {
		d := &demo{t: f, progress: p, nodes: nodes, extra: more}
		d.start()
		p.say("%s", d.guide())
		<-p.stop
		p.say("\nRemoving everything ...")
	})
	if err := home.remove(); err != nil {
		f.Errorf("remove %s: %v", home.dir, err)
		failed = true
	}
	if failed {
		return 1
	}
	return 0
}

// progress tells what is being done, and knows when to stop.
type progress struct {
	begin time.Time
	stop  chan struct{} // closed by the first signal
}

func newProgress() *progress {
	p := &progress{begin: time.Now(), stop: make(chan struct{})}
	signals := make(chan os.Signal, 8)
	// With SIGPIPE, so that a reader of our output that Ctrl-C has ended does
	// not end us before everything is removed.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go p.listen(signals)
	return p
}

func (p *progress) listen(signals <-chan os.Signal) {
	stopped := false
	for s := range signals {
		if s != syscall.SIGPIPE && !stopped {
			stopped = true
			close(p.stop)
		}
	}
}

// step begins the next thing, unless the user wants no more: then the goroutine
// ends, and with it the cluster.
func (p *progress) step(format string, args ...any) {
	select {
	case <-p.stop:
		p.say("Interrupted: removing everything ...")
		runtime.Goexit()
	default:
		p.say("%3.0f s  "+format, append([]any{time.Since(p.begin).Seconds()}, args...)...)
	}
}

func (p *progress) say(format string, args ...any) {
	fmt.Fprintln(os.Stdout, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}
