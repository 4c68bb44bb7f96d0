// Command cluster is `make cluster`: one machine of a real Kubernetes cluster
// with Fairlead on it, in the foreground, for a developer to look around in.
// It is made of what tests are made of and ends as they do: Ctrl-C removes
// everything, and what is left over is an error.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const conf = `{"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "fairlead", "plugins": [
  {"type": "fairlead"}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`

func main() {
	stop := make(chan os.Signal, 8)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	f := &foreground{}
	if f.run(func() { serve(f, stop) }) {
		os.Exit(1)
	}
}

// serve makes the cluster and keeps it until a signal comes.
func serve(f *foreground, stop <-chan os.Signal) {
	begin := time.Now()
	say("Starting a cluster ...")
	c := kube.Start(f, kube.Options{Control: true})
	n := kube.StartNode(f, c, testbed.New(f), kube.NodeOptions{Name: "demo"})
	n.Outside()
	n.Agent("--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.Name, "--iface", testbed.OutsideIf).WaitReady()
	n.WriteConf("00-fairlead.conflist", conf)
	n.WaitReady()
	rc, err := writeEnv(c, n)
	require.NoError(f, err)
	say(fmt.Sprintf(guide, time.Since(begin).Seconds(), n.Name, rc, kube.Busybox,
		kube.Busybox, kube.Pause, testbed.WorldIP4, n.Dir, c.Dir()))
	<-stop
	say("\nRemoving everything ...")
}

const guide = `Ready after %.0f s: one node, %q, with containerd, kubelet, Open vSwitch and Fairlead. In another shell:

  . %s
  kubectl get nodes -o wide
  kubectl create deployment web --image=%s --replicas=2 -- sh -c 'trap exit TERM; sleep 1000000 & wait'
  kubectl get pods -o wide
  kubectl exec deploy/web -- ip addr
  fairlead get pods -A                  # asks the API, as kubectl does
  in_node fairlead get pods --node-local    # asks the agent, in the network and the folders of the machine
  in_node ctr -n k8s.io containers ls
  in_node bash

Images: %s, %s. Services have no addresses that work: there is no kube-proxy.
The node reaches %s, the world outside, and nothing else.
Logs: %s/log, %s/*.log
Ctrl-C removes everything.`

// env is what a shell needs to use the cluster.
const env = `export KUBECONFIG=%s
export PATH=%s:%s:$PATH
in_node() { nsenter --mount=%s/ns/mnt --net=%[4]s/ns/net --wd=/ -- "$@"; }
`

// writeEnv writes that into the cluster's folder and returns the file's name.
func writeEnv(c *kube.Cluster, n *kube.Node) (string, error) {
	programs, err := kube.Programs()
	if err != nil {
		return "", err
	}
	fairlead, err := filepath.Abs(os.Getenv("FAIRLEAD_BIN"))
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.Dir(), "env")
	proc := strings.TrimSuffix(n.NetnsPath(), "/ns/net")
	return file, os.WriteFile(file, fmt.Appendf(nil, env, c.AdminKubeconfig(), programs, fairlead, proc), 0o600)
}

func say(text string) { fmt.Fprintln(os.Stdout, text) }
