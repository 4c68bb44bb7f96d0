package client_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/cri/enginetest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/ops/client"
)

func TestDockerContainers(t *testing.T) {
	e := enginetest.Start(t)
	d, err := client.NewDocker(docker.WithHost(e.Host))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()

	sleeper := func(name string, labels map[string]string) (id string) {
		return e.Run(func(o *docker.ContainerCreateOptions) { o.Name, o.Config.Labels = name, labels }, "sleep", "3600")
	}
	id := sleeper("My_web", nil)
	got, err := d.Container(t.Context(), "My_web")
	require.NoError(t, err)
	require.Equal(t, id, got.Target.Container)
	require.Equal(t, core.Pod{Namespace: "docker", Name: "my-web"}, got.Pod)
	require.Equal(t, "none", got.Mode)
	require.True(t, got.Running)
	ns, err := netns.Open(got.Netns)
	require.NoError(t, err, "the path names a network namespace")
	require.False(t, netns.IsHost(ns))
	require.NoError(t, ns.Close())

	byPrefix, err := d.Container(t.Context(), id[:12])
	require.NoError(t, err)
	require.Equal(t, got, byPrefix)

	sleeper("k8s", map[string]string{"io.kubernetes.pod.namespace": "ns1", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": "u1"})
	labelled, err := d.Container(t.Context(), "k8s")
	require.NoError(t, err)
	require.Equal(t, core.Pod{Namespace: "ns1", Name: "web", UID: "u1"}, labelled.Pod)

	_, err = e.ContainerStop(t.Context(), "My_web", docker.ContainerStopOptions{})
	require.NoError(t, err)
	stopped, err := d.Container(t.Context(), "My_web")
	require.NoError(t, err)
	require.False(t, stopped.Running)
	require.Empty(t, stopped.Netns)

	_, err = d.Container(t.Context(), "nobody")
	require.ErrorIs(t, err, core.ErrNotFound)
}

func TestDockerAway(t *testing.T) {
	d, err := client.NewDocker(docker.WithHost("unix://" + filepath.Join(t.TempDir(), "none.sock")))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = d.Container(ctx, "web")
	require.ErrorIs(t, err, core.ErrUnavailable)
}
