package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// place is where the agent lives, seen from here.
type place struct {
	pid  int   // 0: nobody listens on the socket
	away bool  // in another network namespace than ours
	err  error // it cannot be told
}

// placeOf asks the kernel who listens on the agent's socket (SO_PEERCRED,
// unix(7)) and compares network namespaces. The sockets of agent and OVSDB are
// files, which are found from any of them: all else looks as if it were the
// agent's too.
func placeOf(ctx context.Context, socket string) place {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return place{} // the checks of agent and socket tell
	}
	defer func() { _ = conn.Close() }()
	pid, err := peer(conn)
	if err != nil {
		return place{err: err}
	}
	if pid == 0 {
		return place{err: errors.New("its process is not visible from here")}
	}
	theirs, err := netns.Open(netnsOf(pid))
	if err != nil {
		return place{pid: pid, err: err}
	}
	defer func() { _ = theirs.Close() }()
	ours, err := netns.Current()
	if err != nil {
		return place{pid: pid, err: err}
	}
	defer func() { _ = ours.Close() }()
	return place{pid: pid, away: !ours.Same(theirs)}
}

func netnsOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// peer is the process that listens at the other end, as numbered here; 0 for
// one of another pid namespace.
func peer(conn net.Conn) (int, error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("pid of the agent: the connection is a %T, and no unix socket", conn)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return 0, fmt.Errorf("who listens: %w", err)
	}
	return int(cred.Pid), nil
}

// command is the command that runs fairlead's verb where the agent lives.
func (p place) command(verb, socket string) string {
	cmd := "nsenter --net=" + netnsOf(p.pid) + " fairlead " + verb
	if socket != cni.DefaultSocket {
		cmd += " --socket " + socket
	}
	return cmd
}

// Elsewhere is the command to repeat verb with when the agent lives in another
// network namespace than the caller, whose links, routes and packet filters
// tell nothing of it; "" when it does not, or when that cannot be told.
func Elsewhere(ctx context.Context, cfg Config, verb string) string {
	if p := placeOf(ctx, cfg.Socket); p.away {
		return p.command(verb, cfg.Socket)
	}
	return ""
}

func checkPlace(_ context.Context, m *machine) outcome {
	switch p := m.place; {
	case p.err != nil:
		return warn("run it as root, beside the agent", "it cannot be told whether the agent lives in this one: %v", p.err)
	case p.away:
		return warn(p.command("doctor", m.cfg.Socket), "the agent (pid %d) lives in another one than this command", p.pid)
	case p.pid == 0:
		return good("this command's; no agent runs")
	}
	return good("the agent's")
}

// here marks what was found in a network namespace that is not the agent's. It
// is no failure of the agent's machine, and to repair it would repair nothing.
func (m *machine) here(o outcome) outcome {
	if !m.place.away {
		return o
	}
	o.reason += " (here, not in the agent's network namespace)"
	if o.verdict != OK {
		o.verdict, o.next = Warning, m.place.command("doctor", m.cfg.Socket)
	}
	return o
}
