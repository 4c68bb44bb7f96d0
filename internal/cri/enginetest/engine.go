// Package enginetest helps tests with a Docker Engine of the testbed: containers
// made in one line, and a registry with passwords that the engine can pull from.
// It must not know what is tested with them.
package enginetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

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
	address = fmt.Sprintf("127.0.0.1:%d", 5000+e.registries)
	dir := filepath.Join(e.n.Dir, fmt.Sprintf("registry%d", e.registries))
	require.NoError(e.t, os.MkdirAll(dir, 0o700))
	conf := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}}\nhttp: {addr: '%s'}\n", dir, address)
	if user != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(e.t, err)
		require.NoError(e.t, os.WriteFile(dir+"/htpasswd", []byte(user+":"+string(hash)+"\n"), 0o600))
		conf += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s/htpasswd}}\n", dir)
	}
	require.NoError(e.t, os.WriteFile(dir+"/config.yml", []byte(conf), 0o600))
	// Ended by the cleanup, which comes after the test's context is done.
	c := e.n.Cmd(context.WithoutCancel(e.t.Context()), "docker-registry", "serve", dir+"/config.yml")
	require.NoError(e.t, c.Start())
	e.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	})
	require.Eventually(e.t, func() bool {
		_, err := e.n.Try("busybox", "nc", "-w", "1", "127.0.0.1", fmt.Sprint(5000+e.registries), "-e", "true")
		return err == nil
	}, time.Minute, 50*time.Millisecond, "the registry answers")
	return address
}
