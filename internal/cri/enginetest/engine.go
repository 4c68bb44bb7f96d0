// Package enginetest helps tests with a Docker Engine of the testbed: containers
// made in one line, and a registry with passwords that the engine can pull from.
// It must not know what is tested with them.
package enginetest

import (
	"context"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
)

// Engine is a Docker Engine in a node of its own.
type Engine struct {
	*docker.Engine
	t          *testing.T
	n          *testbed.Node
	registries int
}

// Start runs an engine until the test's end.
func Start(t *testing.T) *Engine {
	t.Helper()
	n := testbed.Bare(t)
	return &Engine{Engine: docker.Start(t, n), t: t, n: n}
}

// Create makes a container of Busybox without a network; edit may change it.
func (e *Engine) Create(edit func(*client.ContainerCreateOptions), command ...string) (id string) {
	e.t.Helper()
	zero := 0
	o := client.ContainerCreateOptions{
		Config:     &container.Config{Image: docker.Busybox, Cmd: command, StopTimeout: &zero},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	}
	if edit != nil {
		edit(&o)
	}
	made, err := e.ContainerCreate(e.t.Context(), o)
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		ctx := context.WithoutCancel(e.t.Context())
		_, _ = e.ContainerRemove(ctx, made.ID, client.ContainerRemoveOptions{Force: true}) // may be gone already
	})
	return made.ID
}

// Run is Create and a start.
func (e *Engine) Run(edit func(*client.ContainerCreateOptions), command ...string) (id string) {
	e.t.Helper()
	id = e.Create(edit, command...)
	_, err := e.ContainerStart(e.t.Context(), id, client.ContainerStartOptions{})
	require.NoError(e.t, err)
	return id
}

// Registry runs Debian's docker-registry on the node's loopback until the test's
// end. With a user it wants basic authentication; an empty one lets everybody in.
func (e *Engine) Registry(user, password string) (address string) {
	e.t.Helper()
	e.registries++
	return docker.Registry(e.t, e.n, 5000+e.registries, user, password)
}
