// Package e2e tests the whole product from outside: the plugin as a runtime
// calls it, the agent as a process, real namespaces, Open vSwitch and foreign
// plugins. State is read with ovs-vsctl, ip, tc and nft, never with our own
// code. It knows the product only as programs, files and sockets.
package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
)

// ownConf is the plain configuration of our own default network.
const ownConf = `{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"fairlead"}`

// runner is a node, a pod or the world outside.
type runner interface {
	Run(argv ...string) string
}

// startNode makes a node with objects (file name to YAML) and a ready agent, so
// that an inventory taken now is the base line.
func startNode(t *testing.T, objects map[string]string, args ...string) *testbed.Node {
	t.Helper()
	n := testbed.New(t)
	for name, yaml := range objects {
		n.WriteObjects(name, yaml)
	}
	n.Agent(args...).WaitReady()
	return n
}

// awaitGateways waits until every declared Subnet has its gateway, after the
// objects changed under a running agent.
func awaitGateways(t *testing.T, n *testbed.Node) {
	t.Helper()
	var subnets agent.SubnetList
	require.NoError(t, json.Unmarshal([]byte(n.Fairlead("get", "subnets", "-o", "json")), &subnets))
	eventually(t, func() string {
		up := n.Run("ip", "-o", "addr", "show", "up")
		for _, s := range subnets.Items {
			for i, gw := range s.Gateways {
				addr := fmt.Sprintf(" %s/%d ", gw, s.CIDRs[i].Bits())
				if !s.Implied && !strings.Contains(up, addr) {
					return "no gateway" + addr + "in: " + up
				}
			}
		}
		return ""
	})
}

// eventually looks until what is missing is "". The time decides only how late
// a failure is seen.
func eventually(t *testing.T, missing func() string) {
	t.Helper()
	why := missing()
	for end := time.Now().Add(2 * time.Minute); why != "" && time.Now().Before(end); why = missing() {
		time.Sleep(20 * time.Millisecond)
	}
	require.Empty(t, why)
}

// seed is a file of testdata.
func seed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(b)
}

// object is a Kubernetes object as YAML, which JSON is. name may be
// "namespace/name".
func object(apiVersion, kind, name string, notes map[string]string, spec any) string {
	meta := map[string]any{"name": name}
	if ns, short, ok := strings.Cut(name, "/"); ok {
		meta["namespace"], meta["name"] = ns, short
	}
	if notes != nil {
		meta["annotations"] = notes
	}
	b, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta, "spec": spec})
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// podObject is a Pod with annotations.
func podObject(name string, notes map[string]string) string {
	return object("v1", "Pod", name, notes, map[string]any{})
}

// nadObject is a NetworkAttachmentDefinition with its configuration.
func nadObject(name, config string) string {
	return object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name, nil, map[string]any{"config": config})
}

// subnetObject is a Subnet.
func subnetObject(name string, spec map[string]any) string {
	return object("kubeovn.io/v1", "Subnet", name, nil, spec)
}

// together joins objects into one YAML file.
func together(objects ...string) string { return strings.Join(objects, "\n---\n") + "\n" }

// ipJSON runs ip with -j and returns its objects.
func ipJSON(t *testing.T, from runner, args ...string) []map[string]any {
	t.Helper()
	out := from.Run(append([]string{"ip", "-j"}, args...)...)
	var objects []map[string]any
	if strings.TrimSpace(out) != "" {
		require.NoError(t, json.Unmarshal([]byte(out), &objects), out)
	}
	return objects
}

// linkOf is what `ip -d link` says of one interface.
func linkOf(t *testing.T, from runner, ifName string) map[string]any {
	t.Helper()
	objects := ipJSON(t, from, "-d", "link", "show", "dev", ifName)
	require.Len(t, objects, 1)
	return objects[0]
}

// linkNames lists the interfaces there, sorted, without tombstones: a DEL is
// answered when the link is down and renamed, the reaper deletes it soon after.
func linkNames(t *testing.T, from runner) []string {
	t.Helper()
	var names []string
	for _, o := range ipJSON(t, from, "link", "show") {
		if name, ok := o["ifname"].(string); ok && !strings.HasPrefix(name, "fltomb") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// addresses lists "10.0.0.2/24" of an interface, without what the kernel makes
// by itself (link-local IPv6).
func addresses(t *testing.T, from runner, ifName string) []string {
	t.Helper()
	var out []string
	for _, o := range ipJSON(t, from, "addr", "show", "dev", ifName) {
		infos, _ := o["addr_info"].([]any)
		for _, i := range infos {
			a, _ := i.(map[string]any)
			if a["scope"] == "link" {
				continue
			}
			b, err := json.Marshal(a["prefixlen"])
			require.NoError(t, err)
			local, _ := a["local"].(string)
			out = append(out, local+"/"+string(b))
		}
	}
	return out
}

// defaultRoutes lists the default routes of a family ("-4" or "-6") as `ip
// route` prints them, one per line, spaces trimmed.
func defaultRoutes(from runner, family string) []string {
	var out []string
	for line := range strings.Lines(from.Run("ip", family, "route", "show", "default")) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return out
}

// hostIf is the name of the host end of a pod's interface.
func hostIf(p *testbed.Pod, ifName string) string {
	if ifName == "eth0" {
		return p.ContainerID[:12] + "_h"
	}
	return p.ContainerID[:12-len(ifName)] + "_" + ifName + "_h"
}

// column is one column of one row of OVSDB, as ovs-vsctl prints it.
func column(n *testbed.Node, table, record, name string) string {
	return strings.Trim(n.OVS.Vsctl("get", table, record, name), `"`)
}

// bare cuts the prefix length off an address.
func bare(addr string) string {
	a, _, _ := strings.Cut(addr, "/")
	return a
}
