package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// powered is a node whose agent's state and whose addresses of host-local lie on
// one ext4 of its own, which can lose its power.
type powered struct {
	*testbed.Node
	t     *testing.T
	image string
	pods  int
}

const poweredDisk = "/opt/disk" // in the node

func newPowered(t *testing.T) *powered {
	t.Helper()
	n := &powered{Node: testbed.New(t), t: t}
	n.image = filepath.Join(n.Dir, "ext4-0")
	n.Run("truncate", "-s", "256M", n.image)
	n.Run("mkfs.ext4", "-q", n.image)
	n.mount()
	objects := []string{
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		nadObject("default/lan", `{"cniVersion":"1.0.0","name":"lan","type":"bridge","bridge":"br-lan","isGateway":true,"ipMasq":true,
			"ipam":{"type":"host-local","dataDir":"`+poweredDisk+`/cni","ranges":[[{"subnet":"10.40.0.0/28"}]]}}`),
	}
	for i := range 3 * poweredPool {
		objects = append(objects, podObject(fmt.Sprintf("default/p%d", i), map[string]string{networksKey: "lan"}))
	}
	n.WriteObjects("all.yaml", together(objects...))
	return n
}

// poweredPool is how many addresses the network has, the gateway's aside.
const poweredPool = 13

func (n *powered) mount() {
	n.t.Helper()
	n.Run("mkdir", "-p", poweredDisk)
	n.Run("mount", "-o", "loop", n.image, poweredDisk)
}

func (n *powered) agent() *testbed.Agent {
	n.t.Helper()
	return n.Agent("--state-dir", poweredDisk+"/state")
}

func (n *powered) next() *testbed.Pod {
	n.t.Helper()
	n.pods++
	return n.NewPod(fmt.Sprintf("p%d", n.pods-1))
}

// lease is the address that a pod has of the network.
func (n *powered) lease(p *testbed.Pod) string {
	n.t.Helper()
	fields := strings.Fields(p.Run("ip", "-o", "-4", "addr", "show", "dev", "net1"))
	require.Greater(n.t, len(fields), 3)
	return bare(fields[3])
}

// files are the files of host-local's addresses, each with what it says.
func (n *powered) files() map[string]string {
	n.t.Helper()
	names, err := filepath.Glob(n.Path(poweredDisk + "/cni/lan/10.*"))
	require.NoError(n.t, err)
	out := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(n.t, err)
		out[filepath.Base(name)] = strings.Trim(string(b), "\x00")
	}
	return out
}

// cutPower ends all of the node at once, and has its disk say what had come to it.
func (n *powered) cutPower() {
	n.t.Helper()
	after := filepath.Join(n.Dir, "ext4-1")
	n.Run("cp", "--sparse=always", n.image, after)
	n.image = after
	n.Reboot()
	n.mount()
}

// TestPowerCutOfTheNode: after a power cut names of leases are there without what
// they say, because the names come to the disk with anybody's fsync and their
// content does not. All sandboxes are gone with the power, so that none of
// them must be known again: the records' own DEL frees them. No address is lost,
// and none is given twice, also while that goes on.
func TestPowerCutOfTheNode(t *testing.T) {
	t.Parallel()
	n := newPowered(t)
	n.agent().WaitReady()
	for range poweredPool - 1 {
		n.next().CNI("ADD", ownConf).Must()
	}
	n.Run("sync", "-f", poweredDisk)
	gone, last := n.next(), n.next()
	gone.CNI("ADD", ownConf).Must()
	require.Len(t, n.files(), poweredPool)
	gone.CNI("DEL", ownConf).Must()
	last.CNI("ADD", ownConf).Must()
	n.Run("sh", "-c", "echo >"+poweredDisk+"/other && sync "+poweredDisk+"/other") // the names, and not what they say
	was := n.lease(last)
	n.cutPower()
	left := n.files()
	require.Contains(t, left, was)
	require.Empty(t, left[was], "the power cut left the name alone")
	require.NotContains(t, left, "10.40.0.1")

	n.agent()
	given := map[string]bool{}
	var pods []*testbed.Pod
	for range poweredPool { // beside the recovery
		p := n.next()
		eventually(t, func() string {
			if e := p.CNI("ADD", ownConf).Err(); e != nil {
				return e.Msg + ": " + e.Details
			}
			return ""
		})
		addr := n.lease(p)
		require.False(t, given[addr], "%s was given twice", addr)
		given[addr] = true
		require.Contains(t, n.files()[addr], p.ContainerID)
		pods = append(pods, p)
	}
	eventually(t, func() string {
		if files := n.files(); len(files) != len(pods) {
			return fmt.Sprintf("%d pods, and these files: %q", len(pods), files)
		}
		return ""
	})
	for _, p := range pods {
		p.CNI("CHECK", ownConf).Must()
		p.CNI("DEL", ownConf).Must()
	}
	require.Empty(t, n.files())
	require.Contains(t, n.Fairlead("status"), " 0 orphans")
}
