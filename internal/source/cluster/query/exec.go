package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/fairlead/fairlead/internal/core"
)

// RunningPod is a pod with a label (KEY=VALUE) that runs, of several one that is ready
// before others; core.ErrNotFound where none does.
func (c *Client) RunningPod(ctx context.Context, namespace, label string) (name string, err error) {
	var list struct {
		Items []struct {
			Metadata Meta `json:"metadata"`
			Status   struct {
				Phase      string `json:"phase"`
				Conditions []struct {
					Type   string `json:"type"`
					Status string `json:"status"`
				} `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := read(ctx, c.rest.Get().AbsPath(Pods.path(namespace)...).Param("labelSelector", label), &list); err != nil {
		return "", c.explain(err, "list", Pods, namespace)
	}
	for _, p := range list.Items {
		if p.Status.Phase != "Running" {
			continue
		}
		name = p.Metadata.Name
		for _, is := range p.Status.Conditions {
			if is.Type == "Ready" && is.Status == "True" {
				return name, nil
			}
		}
	}
	if name == "" {
		err = fmt.Errorf("none of the %d pods %s in namespace %s runs: %w", len(list.Items), label, namespace, core.ErrNotFound)
	}
	return name, err
}

// Exec runs a command in a pod's first container as `kubectl exec -i` does, and
// returns when it ended. What it wrote to its standard error is part of the error.
func (c *Client) Exec(ctx context.Context, namespace, pod string, stream io.ReadWriter, argv ...string) error {
	r := c.rest.Get().AbsPath(append(Pods.path(namespace), pod, "exec")...).Param("stdin", "true").Param("stdout", "true").Param("stderr", "true")
	for _, word := range argv {
		r = r.Param("command", word)
	}
	by, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, r.URL().String())
	if err != nil {
		return fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	old, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, r.URL())
	if err != nil {
		return fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	both, err := remotecommand.NewFallbackExecutor(by, old, func(err error) bool { // servers before 1.30 have SPDY alone
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	var said strings.Builder
	if err := both.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stream, Stdout: stream, Stderr: &said}); err != nil {
		if said.Len() > 0 {
			err = errors.New(strings.TrimSpace(said.String()))
		}
		return fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	return nil
}
