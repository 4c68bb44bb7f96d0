package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

const (
	startAgent = "systemctl start fairlead"

	lowSpace  = 64 << 20 // bytes: the journal and its ballast still fit several times
	fullSpace = 8 << 20
	lowInodes = 64
)

func checkAgent(_ context.Context, m *machine) outcome {
	switch {
	case m.agentErr != nil && (unavailable(m.agentErr) || errors.Is(m.agentErr, errNoAgent)):
		if exists(m.cfg.Socket) == nil {
			return bad("systemctl restart fairlead && journalctl -u fairlead -n 50", "%v", m.agentErr)
		}
		return warn(startAgent, "not running: what only it knows was left out")
	case m.agentErr != nil:
		return bad("fairlead status", "%v", m.agentErr)
	}
	var unmet []string
	for _, c := range m.status.Conditions {
		if !c.OK {
			unmet = append(unmet, c.Name+": "+c.Reason)
		}
	}
	if !m.status.Ready {
		o := bad("repair what is marked ✗ here; journalctl -u fairlead -n 50", "version %s runs and is not ready", m.status.Version)
		o.details = unmet
		return o
	}
	if len(m.status.Orphans) > 0 {
		return warn("fairlead status", "ready, with %d orphans that it cannot remove yet", len(m.status.Orphans))
	}
	return good("version %s, ready, %d pods", m.status.Version, m.status.Pods)
}

// checkSocket proves that only root can reach the agent (reliability.md,
// Security).
func checkSocket(_ context.Context, m *machine) outcome {
	socket := m.cfg.Socket
	info, err := os.Lstat(socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(startAgent, "%s is not there yet", socket)
	case err != nil:
		return bad("ls -la "+filepath.Dir(socket), "%v", err)
	case info.Mode().Type() != fs.ModeSocket:
		return bad("rm "+socket+" && systemctl restart fairlead", "%s is not a socket", socket)
	}
	dir, err := os.Stat(filepath.Dir(socket))
	if err != nil {
		return bad("ls -la "+filepath.Dir(socket), "%v", err)
	}
	for _, f := range []struct {
		path string
		info fs.FileInfo
		want fs.FileMode
	}{{filepath.Dir(socket), dir, 0o700}, {socket, info, 0o600}} {
		st, ok := f.info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid != 0 || f.info.Mode().Perm()&^f.want != 0 {
			return bad(fmt.Sprintf("chown root %s && chmod %04o %s", f.path, f.want, f.path),
				"%s has mode %04o: others than root can reach the agent", f.path, f.info.Mode().Perm())
		}
	}
	return good("%s, root only", socket)
}

// checkMTU compares what pods get with what the node's way out carries.
func checkMTU(_ context.Context, m *machine) outcome {
	u, err := m.cfg.underlay()
	if err != nil {
		return bad("name the node's interface with --iface (`ip -br link` lists them)", "%v", err)
	}
	room := u.MTU - u.Encap
	pod := cmp.Or(m.cfg.MTU, room)
	switch {
	case u.Name == "":
		return good("no default route; pods get %d bytes, as over Ethernet", pod)
	case pod < 1280:
		return bad("raise the MTU of "+u.Name+" or set --mtu", "pods get %d bytes, below the 1280 that IPv6 needs (RFC 8200); %s has %d", pod, u.Name, u.MTU)
	case pod > u.MTU:
		return bad(fmt.Sprintf("run the agent with --mtu %d or less", room), "pods get %d bytes, more than the %d of %s: large packets are lost", pod, u.MTU, u.Name)
	case pod > room:
		return warn(fmt.Sprintf("--mtu %d, before an overlay is used", room), "pods get %d bytes of the %d of %s: no room for encapsulation", pod, u.MTU, u.Name)
	}
	return good("pods get %d bytes; %s has %d", pod, u.Name, u.MTU)
}

// underlay is the interface that tunnels leave by: the agent's, else the one that Iface chooses here,
// for geneve.
func (c *Config) underlay() (agent.Underlay, error) {
	if u := c.Underlay; u != nil {
		if u.Error != "" {
			return agent.Underlay{}, errors.New(u.Error)
		}
		return *u, nil
	}
	conn, err := rtnl.Open(nil)
	if err != nil {
		return agent.Underlay{}, err
	}
	defer func() { _ = conn.Close() }()
	nic, err := encap.Find(conn, c.Iface)
	return agent.Underlay{Name: nic.Name, MTU: nic.MTU, Encap: nic.Room(encap.Geneve)}, err
}

func checkState(_ context.Context, m *machine) outcome {
	dir := m.cfg.StateDir
	// Before the first start the directory is not there: what counts is the
	// file system that it will be on.
	for exists(dir) != nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return bad("ls -ld "+dir, "%s: %v", dir, err)
	}
	free := st.Bavail * uint64(st.Bsize) //nolint:gosec // a block size is positive
	next := "df -h " + dir + " && free some space there"
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return bad("mount -o remount,rw "+dir+", or choose another --state-dir", "%s is read-only", dir)
	case free < fullSpace:
		return bad(next, "%d MiB free for %s: ADD will fail", free>>20, m.cfg.StateDir)
	case st.Files > 0 && st.Ffree < lowInodes:
		return bad("df -i "+dir+" && remove files there", "%d inodes free for %s: ADD will fail", st.Ffree, m.cfg.StateDir)
	case free < lowSpace:
		return warn(next, "%d MiB free for %s", free>>20, m.cfg.StateDir)
	}
	corrupt, err := filepath.Glob(filepath.Join(m.cfg.StateDir, "agent.db.corrupt-*"))
	if err == nil && len(corrupt) > 0 {
		o := warn("fairlead support-bundle, then remove the files", "a journal was quarantined; %d MiB free", free>>20)
		o.details = corrupt
		return o
	}
	return good("%s, %d MiB free", m.cfg.StateDir, free>>20)
}

// noObjects is said where there is no folder of objects.
func noObjects(s agent.Status) outcome {
	if slices.ContainsFunc(s.Conditions, func(c agent.Condition) bool { return c.Name == agent.CheckAPI }) {
		return good("of the Kubernetes API") // whether they are known is the agent's condition
	}
	return good("no --objects: pods get the default network")
}

// checkObjects tells which files of the desired state cannot be read.
func checkObjects(ctx context.Context, m *machine) outcome {
	problems := m.status.Problems
	switch {
	case m.agentUp && len(problems) > 0:
	case m.cfg.Objects == "":
		return noObjects(m.status)
	case m.agentUp:
	case m.cfg.LoadObjects == nil:
		return warn(startAgent, "%s is read by the agent only", m.cfg.Objects)
	default:
		var err error
		if problems, _, err = m.cfg.LoadObjects(m.cfg.Objects, m.cfg.OVN); err != nil {
			return bad("ls -ld "+m.cfg.Objects, "%v", err)
		}
	}
	if len(problems) == 0 {
		return good("%s: all readable", m.cfg.Objects)
	}
	o := bad("correct the lines above; the agent reads them again at once", "not all of %s is in force; the last good version of each object is",
		cmp.Or(m.cfg.Objects, "what the Kubernetes API has"))
	for _, p := range problems {
		where := p.File
		if p.Line > 0 {
			where = fmt.Sprintf("%s:%d", p.File, p.Line)
		}
		o.details = append(o.details, where+": "+p.Reason)
	}
	return o
}
