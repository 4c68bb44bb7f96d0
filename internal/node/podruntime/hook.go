package podruntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/action"
)

// postStart runs the hook of a container that was just started; when it fails
// the container is killed, and its policy decides what follows.
func (r *Runtime) postStart(ctx context.Context, pod *v1.Pod, c *v1.Container, made *Container, ips []string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	err := r.hook(ctx, withPort(c.Lifecycle.PostStart, c), made.ID, ips)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("postStart hook of %s: %w", c.Name, err)
	return &Error{ReasonPostStart, errors.Join(err, r.noteEnd(pod.UID, made, err.Error()), r.stopContainer(ctx, made, ips, Grace(pod)))}
}

// reach is where a pod's containers can be asked.
func (r *Runtime) reach(st *Status) []string {
	switch {
	case len(st.Sandboxes) == 0 || !st.Sandboxes[0].HostNetwork:
		return st.IPs()
	case r.conf.NodeIP != "":
		return []string{r.conf.NodeIP}
	}
	return []string{"127.0.0.1"}
}

// hook runs a lifecycle handler for a container that runs.
func (r *Runtime) hook(ctx context.Context, h *v1.LifecycleHandler, id string, ips []string) error {
	switch {
	case h.Exec != nil:
		return r.execHook(ctx, h.Exec.Command, id)
	case h.HTTPGet != nil:
		return httpHook(ctx, h.HTTPGet, ips)
	case h.Sleep != nil:
		select {
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("the hook says nothing that can be done")
}

func (r *Runtime) execHook(ctx context.Context, command []string, id string) error {
	most := time.Duration(0) // as long as it takes
	if end, ok := ctx.Deadline(); ok {
		most = max(time.Second, time.Until(end))
	}
	out, exit, err := r.Exec(ctx, id, command, most)
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit status %d: %s", exit, out)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// Exec runs a command in a container that runs (action.Execer).
func (r *Runtime) Exec(ctx context.Context, container string, command []string, most time.Duration) (output string, exit int32, err error) {
	out, err := r.conf.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: container, Cmd: command, Timeout: int64(math.Ceil(most.Seconds()))})
	if status.Code(err) == codes.DeadlineExceeded {
		return "", 0, fmt.Errorf("%w: not done within %s", context.DeadlineExceeded, most.Round(time.Second))
	}
	if err != nil {
		return "", 0, err
	}
	return strings.TrimSpace(string(out.GetStdout()) + string(out.GetStderr())), out.GetExitCode(), nil
}

// httpHook asks a container. Any answer is good: the hook tells it something,
// it does not ask. A server that does not speak TLS is told without it, but not
// what proves who we are (kubelet's rule).
func httpHook(ctx context.Context, h *v1.HTTPGetAction, ips []string) error {
	host := ""
	if len(ips) > 0 {
		host = ips[0]
	}
	port, err := action.Port(h.Port, &v1.Container{}) // withPort has found the name
	if err != nil {
		return err
	}
	_, err = action.Get(ctx, h, host, port)
	if err != nil && h.Scheme == v1.URISchemeHTTPS && errors.Is(err, http.ErrSchemeMismatch) {
		clear := h.DeepCopy()
		clear.Scheme = v1.URISchemeHTTP
		clear.HTTPHeaders = slices.DeleteFunc(clear.HTTPHeaders, func(k v1.HTTPHeader) bool { return strings.EqualFold(k.Name, "Authorization") })
		_, err = action.Get(ctx, clear, host, port)
	}
	return err
}

// withPort replaces a port's name by its number: the hook's container may be
// all that is left when it runs.
func withPort(h *v1.LifecycleHandler, c *v1.Container) *v1.LifecycleHandler {
	if h.HTTPGet == nil || h.HTTPGet.Port.Type == intstr.Int {
		return h
	}
	out := h.DeepCopy()
	if n, err := action.Port(h.HTTPGet.Port, c); err == nil {
		out.HTTPGet.Port = intstr.FromInt32(n)
	} // else the hook itself says what is wrong
	return out
}
