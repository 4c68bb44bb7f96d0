package testbed

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// Pinger is a ping that goes on while a test breaks things.
type Pinger struct {
	n   *Node
	cmd *exec.Cmd
	log *os.File
}

// StartPing pings addr from the pod every interval and returns once the first
// answer has come.
func (p *Pod) StartPing(addr string, interval time.Duration) *Pinger {
	p.n.t.Helper()
	log, err := os.Create(filepath.Join(p.n.Dir, "log", "ping-"+p.netns+"-"+strings.ReplaceAll(addr, ":", "_")))
	require.NoError(p.n.t, err)
	g := &Pinger{n: p.n, log: log}
	g.cmd = p.Cmd(context.Background(), "ping", "-n", "-D", "-i", fmt.Sprintf("%.3f", interval.Seconds()), addr)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	require.NoError(p.n.t, g.cmd.Start())
	require.NoError(p.n.t, until("first answer to ping "+addr, func() error {
		if g.answers() == 0 {
			return fmt.Errorf("no answer yet")
		}
		return nil
	}))
	return g
}

// Answers waits until n more answers have come than at the time of the call.
func (g *Pinger) Answers(n int) {
	g.n.t.Helper()
	want := g.answers() + n
	require.NoError(g.n.t, until("answers to ping", func() error {
		if got := g.answers(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	}))
}

func (g *Pinger) answers() int {
	b, err := os.ReadFile(g.log.Name())
	require.NoError(g.n.t, err)
	return strings.Count(string(b), " bytes from ")
}

// overtaken bounds how long Stop waits for an answer that later ones came
// before.
const overtaken = 5 * time.Second

// Stop ends the ping and returns how many requests were answered and how many
// were lost before the last answer. An answer that is merely late is waited
// for. Call Answers before, so that an outage at the end is seen.
func (g *Pinger) Stop() (answered, lost int) {
	g.n.t.Helper()
	for end := time.Now().Add(overtaken); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, lost, _ := g.count(); lost == 0 {
			break
		}
	}
	require.NoError(g.n.t, g.cmd.Process.Signal(syscall.SIGINT))
	_ = g.cmd.Wait() // status 1 = some were lost
	require.NoError(g.n.t, g.log.Close())
	answered, lost, gaps := g.count()
	if lost > 0 {
		g.n.t.Logf("%s: no answer between\n%s", g.cmd, strings.Join(gaps, "\n"))
	}
	return answered, lost
}

// count reads how many requests have been answered, and how many before the
// last of them have not. A gap is the lines of the answers before and after.
func (g *Pinger) count() (answered, lost int, gaps []string) {
	g.n.t.Helper()
	b, err := os.ReadFile(g.log.Name())
	require.NoError(g.n.t, err)
	last, before := 0, "the start"
	for s := bufio.NewScanner(strings.NewReader(string(b))); s.Scan(); {
		var seq int
		_, rest, found := strings.Cut(s.Text(), "icmp_seq=")
		if _, err := fmt.Sscanf(rest, "%d", &seq); !found || err != nil || !strings.Contains(s.Text(), " bytes from ") {
			continue
		}
		if !strings.Contains(s.Text(), "DUP!") {
			answered++
		}
		if seq > last+1 {
			gaps = append(gaps, before+" and "+s.Text())
		}
		if last = max(last, seq); last == seq {
			before = s.Text()
		}
	}
	return answered, last - answered, gaps
}
