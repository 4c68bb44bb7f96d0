package testbed

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// close ends the node: it kills what runs there, by pid, and fails the test on
// what should not have been there any more.
func (n *Node) close() {
	n.t.Helper()
	if n.t.Failed() {
		n.logs()
	}
	for _, l := range n.shut() {
		n.t.Errorf("left over in the node: %s", l)
	}
}

// shut ends everything and returns what was left over.
func (n *Node) shut() []string {
	var left []string
	if n.holder != nil {
		left = append(n.strangers(), n.end()...)
	}
	if n.outside != nil && n.outside.h != nil {
		n.outside.h.end()
	}
	return append(left, n.remove()...)
}

// end kills all that runs and returns what survived. The namespace is held
// meanwhile: the number of a dead one is soon another node's.
func (n *Node) end() []string {
	var left []string
	home, err := os.Open(n.holder.proc("ns/mnt"))
	if err != nil {
		left = append(left, "the holder died: "+err.Error())
	}
	defer home.Close()
	name := link(n.holder.proc("ns/mnt"))
	n.killAll()
	n.holder.end()
	for _, pid := range pidsIn(name) {
		left = append(left, fmt.Sprintf("process %d survived", pid))
	}
	return left
}

// remove deletes the node's folder, unless something is mounted in it: below
// one mount point the node had the machine's cgroups.
func (n *Node) remove() []string {
	var left []string
	for _, m := range mountsBelow(n.Dir) {
		left = append(left, "mount "+m)
	}
	if len(left) > 0 {
		return left
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		left = append(left, err.Error())
	}
	return left
}

// strangers lists processes that neither the testbed nor a running agent's
// shutdown accounts for, and network namespaces that no Pod owns.
func (n *Node) strangers() []string {
	var left []string
	for range 200 { // a process that was just told to end may need a moment
		left = nil
		for _, r := range n.residents() {
			if !n.owns(r.pid) {
				left = append(left, r.String())
			}
		}
		if len(left) == 0 {
			break
		}
		pause()
	}
	for _, name := range n.NetnsNames() {
		if _, ok := n.pods[name]; !ok {
			left = append(left, "network namespace "+name)
		}
	}
	return left
}

func (n *Node) owns(pid int) bool {
	return slices.ContainsFunc(n.started, func(p *Process) bool {
		return p.Running() && (p.PID() == pid || p.Watched() == pid)
	})
}

// logs prints the ends of the daemons' logs into the test's.
func (n *Node) logs() {
	for _, p := range n.started {
		if text := p.tail(); text != "" {
			n.t.Logf("%s:\n%s", p.Name, text)
		}
	}
}

// mountsBelow lists this process's mounts below a folder: the node's must not
// have come out of its namespace.
func mountsBelow(dir string) []string {
	points, err := sysfs.MountPoints()
	if err != nil {
		return []string{err.Error()}
	}
	return slices.DeleteFunc(points, func(p string) bool { return !strings.HasPrefix(p, dir) })
}
