// Package enginetest gives tests a Docker Engine of their own, and a registry
// that it can pull from. It must not know what is tested with them.
package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// Busybox is the image that every engine begins with.
const Busybox = image.BusyboxName

// wrapper lets runc work where the machine may not lower an OOM score (no
// CAP_SYS_RESOURCE).
const wrapper = `#!/bin/bash
args=("$@")
for i in "${!args[@]}"; do
	if [ "${args[i]}" = --bundle ]; then
		sed -i -E 's/"oomScoreAdj":-[0-9]+/"oomScoreAdj":0/' "${args[i+1]}/config.json"
	fi
done
exec runc "$@"
`

// Engine is a private dockerd.
type Engine struct {
	*docker.Client
	t    *testing.T
	Root string // DockerRootDir
}

// Start runs dockerd until the test's end and loads Busybox.
func Start(t *testing.T) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dkr") // short: socket paths end at 108 bytes
	require.NoError(t, err)
	own := filepath.Join(dir, "runtime")
	require.NoError(t, os.WriteFile(own, []byte(wrapper), 0o700))
	host := "unix://" + dir + "/d.sock"
	serve(t, dir, exec.Command("dockerd", "--host="+host, "--log-level=error", "--bridge=none", "--iptables=false", "--ip-forward=false",
		"--storage-driver=vfs", "--data-root="+dir+"/data", "--exec-root="+dir+"/exec", "--pidfile="+dir+"/pid",
		"--add-runtime=own="+own, "--default-runtime=own"))
	cli, err := docker.New(docker.WithHost(host))
	require.NoError(t, err)
	t.Cleanup(func() { _ = cli.Close() })
	e := &Engine{Client: cli, t: t, Root: dir + "/data"}
	require.Eventually(t, func() bool {
		_, err := cli.Ping(t.Context(), docker.PingOptions{})
		return err == nil
	}, time.Minute, 50*time.Millisecond, "dockerd answers")
	archive, err := image.Busybox()
	require.NoError(t, err)
	loaded, err := cli.ImageLoad(t.Context(), bytes.NewReader(archive))
	require.NoError(t, err)
	require.NoError(t, loaded.Close())
	require.Eventually(t, func() bool {
		_, err := cli.ImageInspect(t.Context(), Busybox)
		return err == nil
	}, time.Minute, 50*time.Millisecond, "busybox is loaded")
	return e
}

// serve runs a program until the test's end, then removes its folder.
func serve(t *testing.T, dir string, c *exec.Cmd) {
	t.Helper()
	log := &bytes.Buffer{}
	c.Stdout, c.Stderr = log, log
	require.NoError(t, c.Start(), "run: scripts/setup test")
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s: %s", c.Path, log)
		}
		require.NoError(t, os.RemoveAll(dir), "nothing may still be mounted")
	})
}

// Create makes a container of Busybox without a network; edit may change it.
func (e *Engine) Create(edit func(*docker.ContainerCreateOptions), command ...string) (id string) {
	e.t.Helper()
	zero := 0
	o := docker.ContainerCreateOptions{
		Config:     &container.Config{Image: Busybox, Cmd: command, StopTimeout: &zero},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	}
	if edit != nil {
		edit(&o)
	}
	made, err := e.ContainerCreate(e.t.Context(), o)
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		ctx := context.WithoutCancel(e.t.Context())
		_, _ = e.ContainerRemove(ctx, made.ID, docker.ContainerRemoveOptions{Force: true}) // may be gone already
	})
	return made.ID
}

// Run is Create and a start.
func (e *Engine) Run(edit func(*docker.ContainerCreateOptions), command ...string) (id string) {
	e.t.Helper()
	id = e.Create(edit, command...)
	_, err := e.ContainerStart(e.t.Context(), id, docker.ContainerStartOptions{})
	require.NoError(e.t, err)
	return id
}

// Registry runs Debian's docker-registry on loopback until the test's end. With
// a user it wants basic authentication; an empty one lets everybody in.
func Registry(t *testing.T, user, password string) (address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "reg")
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = l.Addr().String()
	require.NoError(t, l.Close())
	conf := fmt.Sprintf("version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %s/data}}\nhttp: {addr: '%s'}\n", dir, address)
	if user != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(dir+"/htpasswd", []byte(user+":"+string(hash)+"\n"), 0o600))
		conf += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s/htpasswd}}\n", dir)
	}
	require.NoError(t, os.WriteFile(dir+"/config.yml", []byte(conf), 0o600))
	serve(t, dir, exec.Command("docker-registry", "serve", dir+"/config.yml"))
	require.Eventually(t, func() bool {
		res, err := http.Get("http://" + address + "/v2/")
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil
	}, 30*time.Second, 20*time.Millisecond, "the registry answers")
	return address
}
