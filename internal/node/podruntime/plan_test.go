package podruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	up      = cri.ContainerState_CONTAINER_RUNNING
	exited  = cri.ContainerState_CONTAINER_EXITED
	made    = cri.ContainerState_CONTAINER_CREATED
	unknown = cri.ContainerState_CONTAINER_UNKNOWN
)

// testPod has init containers a and s (a sidecar) and b, and main containers m
// and n.
func testPod(policy v1.RestartPolicy) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:  policy,
		InitContainers: []v1.Container{{Name: "a"}, {Name: "s", RestartPolicy: &always}, {Name: "b"}},
		Containers:     []v1.Container{{Name: "m"}, {Name: "n"}},
	}}
}

var ready = Sandbox{ID: "box", Ready: true, IPs: []string{"10.0.0.1"}}

// has is an instance in the sandbox "box", made from testPod's definition.
func has(name string, state cri.ContainerState, exit int32) Container {
	pod := testPod("")
	hash := ""
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if c.Name == name {
			hash = hashOf(&c)
		}
	}
	return Container{ID: name + "-id", Name: name, Sandbox: "box", State: state, ExitCode: exit, Hash: hash}
}

func in(box string, c Container) Container {
	c.Sandbox = box
	return c
}

func TestNewSandboxWhen(t *testing.T) {
	for name, c := range map[string]struct {
		boxes   []Sandbox
		host    bool
		renew   string
		attempt uint32
	}{
		"none":          {nil, false, "the pod has no sandbox", 0},
		"good":          {[]Sandbox{ready}, false, "", 0},
		"several ready": {[]Sandbox{{Ready: true, Attempt: 4, IPs: ready.IPs}, {Ready: true, IPs: ready.IPs}}, false, "several sandboxes are ready", 5},
		"one is old":    {[]Sandbox{ready, {Attempt: 0}}, false, "", 0},
		"not ready":     {[]Sandbox{{Attempt: 1}}, false, "the sandbox is not ready", 2},
		"host now":      {[]Sandbox{ready}, true, "the network mode has changed", 1},
		"no address":    {[]Sandbox{{Ready: true}}, false, "the sandbox has no address", 1},
		"host has none": {[]Sandbox{{Ready: true, HostNetwork: true}}, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways)
			pod.Spec.HostNetwork = c.host
			renew, attempt := needsSandbox(pod, &Status{Sandboxes: c.boxes})
			require.Equal(t, c.renew, renew)
			require.Equal(t, c.attempt, attempt)
		})
	}
}

func TestWhatIsNext(t *testing.T) {
	always, onFailure, never := v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	changed := has("m", up, 0)
	changed.Hash = "of another definition"
	begun := []Container{has("m", up, 0), has("n", up, 0)}
	for name, c := range map[string]struct {
		policy v1.RestartPolicy
		has    []Container
		health map[string]Health
		start  []string
		stop   []string
	}{
		"begin":                {always, nil, nil, []string{"a"}, nil},
		"the first runs":       {always, []Container{has("a", up, 0)}, nil, nil, nil},
		"a crash before start": {always, []Container{has("a", made, 0)}, nil, []string{"a"}, nil},
		"it failed":            {always, []Container{has("a", exited, 1)}, nil, []string{"a"}, nil},
		"it failed for good":   {never, []Container{has("a", exited, 1)}, nil, nil, nil},
		"it is done":           {always, []Container{has("a", exited, 0)}, nil, []string{"s", "b"}, nil},
		"sidecar starting":     {always, []Container{has("a", exited, 0), has("s", up, 0)}, map[string]Health{"s": {NotStarted: true}}, nil, nil},
		"sidecar up":           {always, []Container{has("a", exited, 0), has("s", up, 0)}, nil, []string{"b"}, nil},
		"all done":             {always, []Container{has("a", exited, 0), has("s", up, 0), has("b", exited, 0)}, nil, []string{"m", "n"}, nil},
		"sidecar died":         {never, append([]Container{has("s", exited, 9)}, begun...), nil, []string{"s"}, nil},
		"records are gone":     {always, append([]Container{has("s", up, 0)}, begun...), nil, nil, nil},
		"one exited":           {always, []Container{has("s", up, 0), has("m", exited, 0), has("n", up, 0)}, nil, []string{"m"}, nil},
		"one exited well":      {onFailure, []Container{has("s", up, 0), has("m", exited, 0), has("n", exited, 2)}, nil, []string{"n"}, nil},
		"never again":          {never, []Container{has("s", up, 0), has("m", exited, 0), has("n", exited, 2)}, nil, nil, nil},
		"changed":              {always, []Container{has("s", up, 0), changed, has("n", up, 0)}, nil, []string{"m"}, []string{"m"}},
		"changed, never":       {never, []Container{has("s", up, 0), changed, has("n", up, 0)}, nil, []string{"m"}, []string{"m"}},
		"probe failed":         {always, append([]Container{has("s", up, 0)}, begun...), map[string]Health{"n": {Failed: "why"}}, []string{"n"}, []string{"n"}},
		"probe failed, never":  {never, append([]Container{has("s", up, 0)}, begun...), map[string]Health{"n": {Failed: "why"}}, nil, []string{"n"}},
		"state not known":      {always, []Container{has("s", up, 0), has("m", unknown, 0), has("n", up, 0)}, nil, []string{"m"}, []string{"m"}},
		"not of the pod":       {always, append([]Container{has("s", up, 0), has("x", up, 0)}, begun...), nil, nil, []string{"x"}},
		"of an older sandbox":  {always, []Container{in("old", has("a", exited, 0)), in("old", has("m", exited, 137))}, nil, []string{"a"}, nil},
		"done in an older one": {onFailure, []Container{has("s", up, 0), has("n", up, 0), in("old", has("m", exited, 0))}, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(testPod(c.policy), &Status{Sandboxes: []Sandbox{ready}, Containers: c.has}, c.health)
			var start, stop []string
			for _, s := range p.start {
				start = append(start, s.spec.Name)
			}
			for _, s := range p.stop {
				stop = append(stop, s.container.Name)
			}
			require.Equal(t, c.start, start)
			require.Equal(t, c.stop, stop)
			require.False(t, p.over)
		})
	}
}

// TestWhyStopped: what a probe said goes with the container, and so does the
// probe's own grace.
func TestWhyStopped(t *testing.T) {
	grace := int64(3)
	st := &Status{Sandboxes: []Sandbox{ready}, Containers: []Container{has("s", up, 0), has("m", up, 0), has("n", up, 0)}}
	p := decide(testPod(v1.RestartPolicyAlways), st, map[string]Health{"n": {Failed: "liveness probe failed: x", Grace: &grace}})
	require.Len(t, p.stop, 1)
	require.Equal(t, "liveness probe failed: x", p.stop[0].why)
	require.Equal(t, &grace, p.stop[0].grace)
}

// TestTerminationReason: why a container was stopped stands before its own last words.
func TestTerminationReason(t *testing.T) {
	r := New(Config{PodDir: t.TempDir()})
	words := filepath.Join(t.TempDir(), "words")
	require.NoError(t, os.WriteFile(words, []byte("bye"), 0o600))
	c := &Container{Name: "c", Attempt: 4, messageFile: words}
	require.Equal(t, "bye", r.terminationReason("u", c))
	require.NoError(t, r.noteEnd("u", c, "liveness probe failed: x"))
	require.Equal(t, "liveness probe failed: x\nbye", r.terminationReason("u", c))
	require.Equal(t, "", r.terminationReason("u", &Container{Name: "c", Attempt: 5}))
}

// TestLastWordsOfAnyKind: a container leaves what it likes where its last words are
// to be.
func TestLastWordsOfAnyKind(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"secret": "secret", "vast": "bye", "log": "2026-01-01T00:00:00Z stdout F it failed\n"} {
		require.NoError(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	require.NoError(t, os.Truncate(at("vast"), 1<<40)) // more than any memory
	require.NoError(t, unix.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink(at("secret"), at("link")))
	require.NoError(t, os.Mkdir(at("folder"), 0o700))
	require.Equal(t, "bye"+strings.Repeat("\x00", 4093), (&Container{messageFile: at("vast")}).lastWords())
	for _, name := range []string{"pipe", "link", "folder", "none"} {
		require.Empty(t, (&Container{messageFile: at(name)}).lastWords(), name)
		require.Equal(t, "it failed\n", (&Container{messageFile: at(name), logFile: at("log"), fallsBack: true}).lastWords(), name)
		require.Empty(t, (&Container{logFile: at(name), fallsBack: true}).lastWords(), name)
	}
}

// TestReach: a pod with the node's network is asked at the node's address.
func TestReach(t *testing.T) {
	own := &Status{Sandboxes: []Sandbox{{Ready: true, IPs: []string{"10.0.0.1"}}}}
	host := &Status{Sandboxes: []Sandbox{{Ready: true, HostNetwork: true}}}
	require.Equal(t, []string{"10.0.0.1"}, New(Config{NodeIP: "192.0.2.1"}).reach(own))
	require.Equal(t, []string{"192.0.2.1"}, New(Config{NodeIP: "192.0.2.1"}).reach(host))
	require.Equal(t, []string{"127.0.0.1"}, New(Config{}).reach(host))
	require.Empty(t, New(Config{}).reach(&Status{}))
}

// TestNeverMeansNever: a pod whose sandbox died is not begun anew, unless its
// main containers have not begun at all.
func TestNeverMeansNever(t *testing.T) {
	dead := []Sandbox{{ID: "box"}}
	p := decide(testPod(v1.RestartPolicyNever), &Status{Sandboxes: dead, Containers: []Container{has("m", up, 0)}}, nil)
	require.True(t, p.over)
	p = decide(testPod(v1.RestartPolicyNever), &Status{Sandboxes: dead, Containers: []Container{has("a", exited, 0)}}, nil)
	require.False(t, p.over)
	require.NotEmpty(t, p.renew)
	p = decide(testPod(v1.RestartPolicyAlways), &Status{Sandboxes: dead, Containers: []Container{has("m", up, 0)}}, nil)
	require.False(t, p.over)
}

// TestIdle: what was made and never started does not end, whoever stops it.
func TestIdle(t *testing.T) {
	require.True(t, (&Status{Containers: []Container{has("m", made, 0), has("n", exited, 1)}}).Idle())
	require.False(t, (&Status{Containers: []Container{has("m", unknown, 0)}}).Idle())
	require.False(t, (&Status{Sandboxes: []Sandbox{ready}}).Idle())
}

func TestDelays(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := newBackoff(func() time.Time { return now })
	died := now
	var got []time.Duration
	for range 8 {
		left := b.left("k", died)
		got = append(got, left)
		require.Equal(t, left, b.left("k", died), "asked twice about one failure")
		now = now.Add(left + time.Second)
		died = now
	}
	s := time.Second
	require.Equal(t, []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}, got)
	now = now.Add(2*mostDelay + s)
	require.Zero(t, b.left("k", now), "after a calm time")

	require.Equal(t, 10*s, b.failed("pull"))
	require.Equal(t, 10*s, b.pending("pull"))
	now = now.Add(10 * s)
	require.Zero(t, b.pending("pull"))
	require.Equal(t, 20*s, b.failed("pull"))
	b.forget(func(k string) bool { return k == "pull" })
	require.Zero(t, b.pending("pull"))
}
