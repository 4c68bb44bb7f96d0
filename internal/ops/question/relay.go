package question

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// centralLabel is what pods of members of central have.
const centralLabel = "app.kubernetes.io/name=fairlead-central"

// relays lead to the databases of a member of central through the API server, with the
// user's right to exec in its pod: who may do that needs no certificate, wherever he is.
type relays struct {
	mu     sync.Mutex
	dir    string // of their sockets
	made   map[string]string
	closed []io.Closer
	failed error // of the last connection
}

// Answer asks a question, and ends what that needed.
func (q Question) Answer(ctx context.Context, a Asked) (view.Answer, error) {
	if a.API == nil {
		return q.Ask(ctx, a)
	}
	long, end := context.WithCancel(context.WithoutCancel(ctx)) // a program that is handed the relay has a limit of its own
	defer end()
	r := &relays{made: map[string]string{}}
	defer r.close()
	a.relay = func(short string) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if at := r.made[short]; at != "" {
			return at, nil
		}
		pod, err := a.API.RunningPod(ctx, a.Flags["install-namespace"], centralLabel)
		if err != nil {
			return "", err
		}
		return r.to(long, a, pod, short)
	}
	answer, err := q.Ask(ctx, a)
	if why := r.why(); err != nil && why != nil {
		err = fmt.Errorf("%w (%w)", err, why)
	}
	return answer, err
}

// relayed is the place of a database ("nb", "sb") behind a relay, and what was found
// without one where there is none.
func relayed(a Asked, short string, found rows.Place, err error) (rows.Place, error) {
	if a.relay == nil || a.Flags[short] != "" {
		return found, err
	}
	endpoint, none := a.relay(short)
	if none == nil {
		return rows.Place{Endpoint: endpoint}, nil
	}
	if err == nil {
		a.Note("no way to central through the API server: " + none.Error())
	}
	return found, err
}

// to makes the relay of a database to a pod, and gives its place. The caller holds mu.
func (r *relays) to(ctx context.Context, a Asked, pod, short string) (endpoint string, err error) {
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "fairlead-"); err != nil {
			return "", err
		}
	}
	path := filepath.Join(r.dir, short)
	l, err := net.Listen("unix", path)
	if err != nil {
		return "", err
	}
	r.closed, r.made[short] = append(r.closed, l), "unix:"+path
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			go func() {
				defer conn.Close()
				r.lead(a.API.Exec(ctx, a.Flags["install-namespace"], pod, conn, "fairlead", "ovn", "connect", short))
			}()
		}
	}()
	return r.made[short], nil
}

// lead keeps why a connection ended.
func (r *relays) lead(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = err
}

// why tells what became of the last connection.
func (r *relays) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *relays) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.closed {
		_ = c.Close()
	}
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// connect leads the caller's streams to a database of the member of central that runs
// here: the far end of a relay.
func connect(ctx context.Context, a Asked) (view.Answer, error) {
	at := ""
	if a.Args[0] == "nb" || a.Args[0] == "sb" {
		at = member(a, a.Args[0])
	}
	path, is := strings.CutPrefix(at, "unix:")
	if !is {
		return view.Answer{}, hint.Usagef("no member of central has a database %q here", a.Args[0])
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return view.Answer{}, err
	}
	defer conn.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(conn, a.In); ended <- err }()
	go func() { _, err := io.Copy(a.Out, conn); ended <- err }()
	return view.Answer{}, <-ended
}
