package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
)

// said is what a command has written, which may be read while it runs.
type said struct {
	out, err string
	code     int
}

// fairlead runs a command of the operator in the node.
func (b *bed) fairlead(stdin string, args ...string) said {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	cmd := b.Cmd(ctx, append([]string{testbed.Program(b.t)}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(b.t, err)
	}
	require.NoError(b.t, ctx.Err())
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// TestLogsAndExec: what containers say, and commands in them, by the operator's
// commands.
func TestLogsAndExec(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := web(0)
	p.Annotations = nil
	p.Spec.InitContainers = []v1.Container{shell("setup", "echo prepared")}
	p.Spec.Containers = []v1.Container{
		shell("c", "echo one; echo two; echo three; until [ -e /tmp/end ]; do sleep 0.1; done; rm /tmp/end; echo four; exit 1"),
		shell("side", "echo other >&2; "+forever),
	}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
	b.startNode("--http", "127.0.0.1:8099")
	b.write(p)
	b.awaitPod("web-0", ready)
	b.await("what it says", func() error {
		if got := b.fairlead("", "logs", "web-0"); got.code != 0 || got.out != "one\ntwo\nthree\n" || !strings.Contains(got.err, "container c, of 2") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	require.Equal(t, said{out: "three\n"}, b.fairlead("", "logs", "default/web-0-node1", "-c", "c", "--tail", "1"))
	b.await("what it says to standard error", func() error {
		if got := b.fairlead("", "logs", "web-0", "-c", "side"); got != (said{out: "other\n"}) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	require.Equal(t, said{out: "prepared\n"}, b.fairlead("", "logs", "web-0", "-n", "default", "-c", "setup"))
	require.Regexp(t, `^20\d\d-\d\d-\d\dT[0-9:.]+\S* one\n`, b.fairlead("", "logs", "web-0", "-c", "c", "--timestamps").out)
	require.Equal(t, 3, b.fairlead("", "logs", "nobody").code)
	require.Equal(t, 3, b.fairlead("", "logs", "web-0", "-c", "nobody").code)
	require.Equal(t, 4, b.fairlead("", "logs", "web-0", "--node-socket", "/nowhere").code)
	none := b.fairlead("", "logs", "web-0", "-c", "c", "-p")
	require.Equal(t, 1, none.code)
	require.Contains(t, none.err, "was not started before")

	testExec(t, b)
	b.testFollow()

	// Over the network what may be read, and nothing else.
	get := func(path string) string {
		return b.Run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8099"+path)
	}
	require.Equal(t, "200", get("/pods"))
	require.Equal(t, "200", get("/containerLogs/default/web-0/side"))
	require.Equal(t, "404", get("/exec/default/web-0/c?command=true&output=1"))
	stat, err := os.Stat(filepath.Join(b.Dir, "run/fairlead/node.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), stat.Mode().Perm())
	b.erase("web-0")
	b.awaitEmpty()
	b.requireNoLeaks()
}

func testExec(t *testing.T, b *bed) {
	t.Helper()
	require.Equal(t, said{out: "out\n", err: "err\n", code: 7}, b.fairlead("", "exec", "web-0", "-c", "c", "--", "sh", "-c", "echo out; echo err >&2; exit 7"))
	require.Equal(t, said{out: "read this"}, b.fairlead("read this", "exec", "web-0", "-c", "side", "-i", "--", "cat"))
	require.Equal(t, 2, b.fairlead("", "exec", "web-0", "true").code)
	missing := b.fairlead("", "exec", "web-0", "-c", "c", "--", "/no/such/program")
	require.NotZero(t, missing.code)
	require.Contains(t, missing.err, "/no/such/program")
	// A terminal of ours becomes one of the command, of the same size.
	out := b.Run("script", "-qec", "stty rows 33 cols 77; "+testbed.Program(t)+" exec -i -t -c c web-0 -- sh -c 'tty; until stty size | grep \"33 77\"; do sleep 0.1; done; exit 0'", "/dev/null")
	require.Contains(t, out, "/dev/pts/")
	require.Contains(t, out, "33 77")
}

// testFollow follows a container to its end, and finds what it said afterwards.
func (b *bed) testFollow() {
	b.t.Helper()
	follow := b.Cmd(b.t.Context(), testbed.Program(b.t), "logs", "web-0", "-c", "c", "-f", "--tail", "1")
	out, err := follow.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, follow.Start())
	first := make([]byte, len("three\n"))
	_, err = io.ReadFull(out, first)
	require.NoError(b.t, err)
	require.Equal(b.t, "three\n", string(first))
	up := b.awaitPod("web-0", ready)
	b.exec(&up, "touch", "/tmp/end")
	rest, err := io.ReadAll(out)
	require.NoError(b.t, err)
	require.NoError(b.t, follow.Wait())
	require.Equal(b.t, "four\n", string(rest))
	b.await("the next instance", func() error {
		if got := b.fairlead("", "logs", "web-0", "-c", "c", "-p"); got.out != "one\ntwo\nthree\nfour\n" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// TestDescribed: a pod that does not run says why, since when, until when, and
// where it comes from.
func TestDescribed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := web(0)
	p.Annotations = nil
	p.Spec.Containers = []v1.Container{shell("c", "echo no >/dev/termination-log; exit 5"), shell("side", forever)}
	lost := web(1)
	lost.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "nowhere"}
	b.startNode()
	b.write(p)
	b.write(lost)
	b.await("its description", func() error {
		got := b.fairlead("", "describe", "pod", "default/web-0", "--node-local")
		for _, part := range []string{
			"file, " + filepath.Join(b.pods(), "web-0.json"), "Running", "Container c\n", "waiting, CrashLoopBackOff, next try in ", "Exit code:  5", "Restarts:",
			"Container side\n", "Interface eth0", "Not met\n",
		} {
			if got.code != 0 || !strings.Contains(got.out, part) {
				return fmt.Errorf("no %q: %s%s", part, got.out, got.err)
			}
		}
		return nil
	})
	b.await("the other's description", func() error {
		got := b.fairlead("", "describe", "pod", "default/web-1", "--node-local")
		for _, part := range []string{"Pending", "Last error, ", "tried again in ", "nowhere", "waiting, ContainerCreating"} {
			if got.code != 0 || !strings.Contains(got.out, part) {
				return fmt.Errorf("no %q: %s%s", part, got.out, got.err)
			}
		}
		return nil
	})
	var pod agent.Pod
	require.NoError(t, json.Unmarshal([]byte(b.fairlead("", "describe", "pod", "web-0", "--node-local", "-o", "json").out), &pod))
	require.NotNil(t, pod.Run)
	require.Equal(t, "web-0-node1", pod.Run.Name)
	require.Len(t, pod.Run.Containers, 2)
	b.erase("web-0")
	b.erase("web-1")
	b.awaitEmpty()
	b.requireNoLeaks()
}
