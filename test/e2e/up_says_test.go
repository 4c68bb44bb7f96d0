package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
)

// TestUpNeedsARuntime: what is missing is said, with what to install or start,
// and nothing is done.
func TestUpNeedsARuntime(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	before := n.Inventory()
	said := func(path string, args ...string) string {
		out, err := n.Try(append([]string{"env", "-u", "DOCKER_HOST", "PATH=" + path, testbed.Program(t), "up", "--dir", n.Objects()}, args...)...)
		require.Error(t, err)
		require.Empty(t, out)
		return err.Error()
	}
	nothing := said("/nonexistent")
	require.Contains(t, nothing, "fairlead: no container runtime: containerd: unix:///run/containerd/containerd.sock does not answer as a CRI runtime")
	require.Contains(t, nothing, "Docker: ")
	require.Contains(t, nothing, "next: install Docker (`apt-get install docker.io`), or containerd (`apt-get install containerd runc`)")
	require.Contains(t, said(os.Getenv("PATH")), "next: start Docker (`systemctl start docker`)")
	require.Contains(t, said("/nonexistent", "--runtime=containerd"), "next: install containerd")
	require.Contains(t, said("/nonexistent", "--runtime=/run/other.sock"), "next: start the runtime that serves it")
	require.Contains(t, said("/nonexistent", "--dir=/none"), "there is no folder /none")
	require.Equal(t, "nothing is up\n", n.Fairlead("down"))
	lock := filepath.Join(n.Dir, "disk/var/lib/fairlead/up.lock") // who waits has it open: it stays
	require.NoError(t, os.Remove(lock))
	n.RequireNoLeaks(before)

	bare := testbed.Bare(t)
	_, err := bare.Try("env", "PATH=/nonexistent", testbed.Program(t), "up", "--dir", bare.Objects())
	require.ErrorContains(t, err, "open vSwitch does not answer at /run/openvswitch/db.sock")
	require.ErrorContains(t, err, "next: install it (`apt-get install openvswitch-switch`)")
}

// brokenPods is one whose image is nowhere.
const brokenPods = `---
{apiVersion: v1, kind: Pod, metadata: {name: lost}, spec: {terminationGracePeriodSeconds: 2, containers: [{name: c, image: fairlead.local/none:1, imagePullPolicy: Never}]}}
`

var upLost = regexp.MustCompile(`default/lost-node1: container c: ErrImageNeverPull`)

// TestUpSays: what does not come up is explained; a signal leaves pods; a
// second process, another folder and pods of others are refused.
func TestUpSays(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	b.write("a.yaml", upPod("web-0", "", "one"))
	b.up()
	b.awaitUp()
	had := b.sandboxes()
	b.write("b.yaml", brokenPods)
	b.write("c.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: 3}\n")
	up := append([]string{"up"}, b.args...)
	eventually(t, func() string {
		out, err := b.TryFairlead(append(up, "--detach", "--timeout=3s")...)
		require.Error(t, err)
		require.Contains(t, err.Error(), "c.yaml:4: ")
		require.Regexp(t, `default/web-0-node1 +Running`, err.Error()+out)
		if !upLost.MatchString(err.Error()) {
			return err.Error()
		}
		return ""
	})
	b.erase("b.yaml")
	b.erase("c.yaml")
	b.awaitUp()

	_, err := b.TryFairlead(up...)
	require.ErrorContains(t, err, "it is up already (process ")
	_, err = b.TryFairlead(append(up, "--detach", "--dir="+b.Objects())...)
	require.ErrorContains(t, err, b.dir+" is up on this machine")
	_, err = b.TryFairlead("down", "--dir="+b.Objects())
	require.ErrorContains(t, err, b.Objects()+" is not up: "+b.dir+" is")

	b.proc.end(syscall.SIGINT)
	require.True(t, b.proc.cmd.ProcessState.Success(), "the end of up: %s", b.proc.cmd.ProcessState)
	require.Equal(t, had, b.sandboxes())

	// Detached it goes on with them.
	out := b.Fairlead(append(up, "--detach")...)
	require.Regexp(t, `default/web-0-node1 +Running`, out)
	require.Equal(t, had, b.sandboxes())
	b.down()
	b.requireNothing()

	other, err := b.runtime.RunPodSandbox(t.Context(), inNodesNetwork("other", nil, ""))
	require.NoError(t, err)
	_, err = b.TryFairlead(up...)
	require.ErrorContains(t, err, "the runtime has pods of another program: default/other is one")
	_, err = b.runtime.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: other.GetPodSandboxId()})
	require.NoError(t, err)
	b.requireNothing()
}

// TestUpInstall writes a unit, and says what it would do where systemd runs.
func TestUpInstall(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	const unit = "/etc/systemd/system/fairlead-up.service"
	out := b.Fairlead(append([]string{"up", "--install"}, b.args...)...)
	require.Equal(t, `written `+unit+`
systemd does not run here; where it does:
  systemctl daemon-reload
  systemctl enable fairlead-up.service
  systemctl restart fairlead-up.service
`, out)
	text := b.Run("cat", unit)
	program, err := filepath.EvalSymlinks(testbed.Program(t))
	require.NoError(t, err)
	require.Contains(t, text, "Type=notify\n")
	require.Contains(t, text, "ExecStart="+program+" up --cgroup-root=")
	require.Contains(t, text, " --dir="+b.dir+" ")
	require.NotContains(t, text, "--install")
	require.Equal(t, `systemd does not run here; where it does:
  systemctl disable --now fairlead-up.service
removed `+unit+`
systemd does not run here; where it does:
  systemctl daemon-reload
nothing is up
`, b.Fairlead("down", "--uninstall"))
	b.requireNothing()
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestUpDocumented: the folder of docs/standalone.md gives what stands there.
func TestUpDocumented(t *testing.T) {
	t.Parallel()
	root, err := testbed.Repository()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/standalone.md"))
	require.NoError(t, err)
	block := yamlBlock.FindSubmatch(text)
	require.NotNil(t, block)
	b := newUpDocker(t)
	_, err = b.engine.ImageTag(t.Context(), client.ImageTagOptions{Source: docker.Busybox, Target: "docker.io/library/busybox:1.36"})
	require.NoError(t, err)
	b.erase("networks.yaml")
	b.write("all.yaml", string(block[1]))
	b.up()
	table := b.awaitUp()
	require.Regexp(t, `(?m)^default/web-0-node1 +Running +10\.16\.0\.77 +eth0=fairlead, net1=default/storage 10\.20\.0\.\d+$`, table)
	require.Contains(t, b.Fairlead("exec", "default/web-1-node1", "--", "ping", "-c1", "-W5", "10.16.0.77"), "1 packets received")
	require.Contains(t, b.Fairlead("describe", "pod", "default/web-0-node1"), "10.16.0.77")
	b.down()
	require.Empty(t, b.list())
}

func (b *upBed) list() []string {
	names, err := filepath.Glob(filepath.Join(b.Dir, "disk/var/lib/fairlead/node/pods/*"))
	require.NoError(b.t, err)
	return names
}
