package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/testbed"
)

// installedOVS is DaemonSet fairlead-openvswitch, whose containers run here as
// processes of a node, with its folders in their places.
func installedOVS(t *testing.T, n *testbed.Node) appsv1.DaemonSet {
	t.Helper()
	all := n.Run(testbed.Program(t), "install", "--dry-run", "-o", "yaml", "--set", "openvswitch.enabled=true")
	for doc := range strings.SplitSeq(all, "\n---") {
		if !strings.Contains(doc, "kind: DaemonSet") || !strings.Contains(doc, "name: fairlead-openvswitch") {
			continue
		}
		ds := appsv1.DaemonSet{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &ds))
		n.Run("mkdir", "-p", "/var/lib/openvswitch", "/run/openvswitch")
		return ds
	}
	require.FailNow(t, "no DaemonSet fairlead-openvswitch in:\n"+all)
	return appsv1.DaemonSet{}
}

// TestInstalledOpenVSwitch: what the chart runs as Open vSwitch makes its database,
// carries pods, keeps the database over its restarts, and leaves an Open vSwitch
// alone that is there.
func TestInstalledOpenVSwitch(t *testing.T) {
	t.Parallel()
	n := testbed.Bare(t)
	spec := installedOVS(t, n).Spec.Template.Spec
	argv := func(c corev1.Container) []string {
		out := []string{"env"}
		if !slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool { return v.MountPath == "/tmp" }) { // as its root is
			out = []string{"unshare", "--mount", "sh", "-ec", `mount -t tmpfs -o ro none /tmp; exec "$@"`, "sh", "env"}
		}
		for _, e := range c.Env {
			out = append(out, e.Name+"="+e.Value)
		}
		return append(out, c.Command...)
	}
	start := func() (running []*testbed.Process) {
		n.Run(argv(spec.InitContainers[0])...)
		for _, c := range spec.Containers {
			running = append(running, n.Start(c.Name, argv(c)...))
		}
		probe := spec.Containers[1].ReadinessProbe.Exec.Command
		eventually(t, func() string {
			if out, err := n.Cmd(t.Context(), probe...).CombinedOutput(); err != nil {
				return string(out)
			}
			return ""
		})
		return running
	}
	running := start()
	out, err := n.Cmd(t.Context(), argv(spec.InitContainers[0])...).CombinedOutput()
	require.Error(t, err, "a second one")
	require.Contains(t, string(out), "an Open vSwitch runs on this node already")

	n.WriteObjects("subnet.yaml", subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}))
	n.Agent().WaitReady()
	a, b := n.NewPod("a"), n.NewPod("b")
	a.CNI("ADD", ownConf).Must()
	at := bare(b.CNI("ADD", ownConf).Must().IPs()[0])
	require.NoError(t, a.Ping(at))
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, p := range running {
			require.NoError(t, syscall.Kill(p.PID(), end))
			<-p.Done()
		}
		running = start()
		eventually(t, func() string {
			if err := a.Ping(at); err != nil {
				return err.Error()
			}
			if e := a.CNI("CHECK", ownConf).Err(); e != nil {
				return e.Msg
			}
			return ""
		})
	}
	for _, p := range []*testbed.Pod{a, b} {
		p.CNI("DEL", ownConf).Must()
	}
}
