package podruntime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// postStart runs the hook of a container that was just started; when it fails
// the container is killed, and its policy decides what follows.
func (r *Runtime) postStart(ctx context.Context, pod *v1.Pod, c *v1.Container, id string, ips []string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	err := r.hook(ctx, withPort(c.Lifecycle.PostStart, c), id, ips)
	if err == nil {
		return nil
	}
	one := &Container{ID: id, Name: c.Name}
	return &Error{ReasonPostStart, errors.Join(fmt.Errorf("postStart hook of %s: %w", c.Name, err),
		r.stopContainer(ctx, one, ips, Grace(pod)))}
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
	return nil
}

func (r *Runtime) execHook(ctx context.Context, command []string, id string) error {
	timeout := int64(0) // none
	if end, ok := ctx.Deadline(); ok {
		timeout = max(1, int64(time.Until(end).Seconds()))
	}
	out, err := r.conf.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: timeout})
	if err != nil {
		return err
	}
	if out.GetExitCode() != 0 {
		return fmt.Errorf("%s: exit status %d: %s", strings.Join(command, " "), out.GetExitCode(), out.GetStderr())
	}
	return nil
}

func httpHook(ctx context.Context, h *v1.HTTPGetAction, ips []string) error {
	host := h.Host
	if host == "" {
		if len(ips) == 0 {
			return errors.New("the pod has no address")
		}
		host = ips[0]
	}
	scheme := strings.ToLower(string(h.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	port := h.Port.String()
	url := scheme + "://" + net.JoinHostPort(host, port) + "/" + strings.TrimPrefix(h.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	for _, k := range h.HTTPHeaders {
		req.Header.Add(k.Name, k.Value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	// Any answer is good: the hook tells the container, it does not ask.
	return resp.Body.Close()
}

// withPort replaces a port's name by its number: the hook's container may be
// all that is left when it runs.
func withPort(h *v1.LifecycleHandler, c *v1.Container) *v1.LifecycleHandler {
	if h.HTTPGet == nil || h.HTTPGet.Port.Type == intstr.Int {
		return h
	}
	out := h.DeepCopy()
	for _, p := range c.Ports {
		if p.Name == h.HTTPGet.Port.StrVal {
			out.HTTPGet.Port = intstr.FromInt32(p.ContainerPort)
			return out
		}
	}
	if n, err := strconv.ParseInt(h.HTTPGet.Port.StrVal, 10, 32); err == nil {
		out.HTTPGet.Port = intstr.FromInt32(int32(n))
	}
	return out
}
