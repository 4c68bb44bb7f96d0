package ovn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// Over is a central over TLS that a program of the product runs, `fairlead-controller
// central`: By says which. Its sockets are in RunDir, its ports the same.
func Over(t testing.TB, n *testbed.Node, addr string) *Central {
	return &Central{Node: n, t: t, addr: addr, secure: true}
}

// Beside is told the other members' addresses, for Endpoint and Remote.
func (c *Central) Beside(addrs ...string) { c.beside = addrs }

// Leads tells whether this member leads the northbound database, or the southbound one.
func (c *Central) Leads(southbound bool) bool {
	d := north
	if southbound {
		d = south
	}
	status, err := c.Node.Try("ovs-appctl", "-t", ctl(d.short), "cluster/status", d.name)
	return err == nil && strings.Contains(status, "\nRole: leader")
}

// Die ends the program and all its parts with SIGKILL, as a machine does that loses its power.
func (c *Central) Die() {
	c.t.Helper()
	c.freeze("northd", "relay", "sb", "nb")
	c.by.Kill()
}

// By is told the program.
func (c *Central) By(p *testbed.Process) { c.by = p }

// Program is the one that By was told.
func (c *Central) Program() *testbed.Process { return c.by }

// RunDir is where the program has its sockets.
func (c *Central) RunDir() string { return c.run() }

// Endpoint is the northbound database's for controllers: over TLS, or as NB says.
func (c *Central) Endpoint() string {
	if !c.secure {
		return c.NB()
	}
	return c.over("ssl", north)
}

// freeze ends parts of the program with SIGKILL, and keeps it from starting them
// again until thaw.
func (c *Central) freeze(parts ...string) {
	c.t.Helper()
	require.NoError(c.t, syscall.Kill(c.by.PID(), syscall.SIGSTOP))
	for _, name := range parts {
		pid := c.part(name)
		c.signal(name, syscall.SIGKILL)
		eventually(c.t, name+" of central ends", func() error {
			if c.part(name) == pid {
				return errors.New("it runs")
			}
			return nil
		})
	}
}

// thaw lets the program go on, and waits until it has started databases again.
func (c *Central) thaw(started ...db) {
	c.t.Helper()
	require.NoError(c.t, syscall.Kill(c.by.PID(), syscall.SIGCONT))
	for _, d := range started {
		c.accepts(d, c.by)
	}
}

// Pause stops the southbound database's server, which then answers nobody: neither
// northd nor the relay, which goes on with what it has. Resume lets it go on.
func (c *Central) Pause() { c.signal("sb", syscall.SIGSTOP) }

// Resume is Pause's end.
func (c *Central) Resume() { c.signal("sb", syscall.SIGCONT) }

func (c *Central) signal(part string, s syscall.Signal) {
	c.t.Helper()
	pid := c.part(part)
	require.NotZero(c.t, pid, "%s of central does not run", part)
	require.NoError(c.t, syscall.Kill(pid, s))
}

// part is the process id of one of the program's children, 0 for none.
func (c *Central) part(name string) int {
	parent := []byte(fmt.Sprintf("\nPPid:\t%d\n", c.by.PID()))
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, d := range dirs {
		status, err := os.ReadFile(filepath.Join(d, "status"))
		if err != nil || !bytes.Contains(status, parent) {
			continue
		}
		args, err := os.ReadFile(filepath.Join(d, "cmdline")) // that of a dead one is empty
		if err == nil && strings.Contains(string(args), "/"+name+".ctl\x00") {
			pid, _ := strconv.Atoi(filepath.Base(d)) // the pattern is of digits
			return pid
		}
	}
	return 0
}
