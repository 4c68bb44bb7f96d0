package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestOVNComesToANode: pods whose addresses their agent chose run on with these when
// their cluster gets a controller and OVN; no other pod gets one of them. The controller
// gives no address while the agent does.
func TestOVNComesToANode(t *testing.T) {
	t.Parallel()
	o := newOVNCentral(t, kube.Options{}, ovn.Over)
	o.startCentral()
	n := o.enlist(o.under, "node-1")
	n.chassis.Kill() // it is not there yet
	n.agent = n.Agent(n.args[slices.Index(n.args, "--kubeconfig"):]...)
	n.agent.WaitReady()
	web, data := n.run("web/old"), n.run("data/old")
	macs := map[*ovnPod]string{}
	for _, p := range []*ovnPod{web, data} {
		p.runs()
		macs[p], _ = ipJSON(t, p, "link", "show", "eth0")[0]["address"].(string)
	}
	web.talks(data)
	known := map[*ovnPod]any{} // the MAC of its gateway, as the pod's kernel knows it
	for _, p := range []*ovnPod{web, data} {
		gateway, _ := ipJSON(t, p, "-4", "route", "show", "default")[0]["gateway"].(string)
		known[p] = ipJSON(t, p, "neigh", "show", gateway)[0]["lladdr"]
	}

	controller := o.controller("a", "127.0.0.1:10666")
	o.signer.Stop()
	eventually(t, func() string {
		if got := o.c.Kubectl("get", "events", "--field-selector=reason=AgentWithoutOVN", "-o", "jsonpath={.items[*].message}"); !strings.Contains(got, "Subnet data, web") {
			return "the Node has no event about its agent: " + got
		}
		return ""
	})
	late := n.run("web/late") // its agent gives it an address
	late.runs()
	macs[late], _ = ipJSON(t, late, "link", "show", "eth0")[0]["address"].(string)
	require.Empty(t, o.c.Kubectl("get", "pod", "-n", "web", "late", "-o", `jsonpath={.metadata.annotations.ovn\.kubernetes\.io/allocated}`))

	n.agent.Kill()
	n.chassis.Start()
	n.agent = n.Agent(n.args...)
	for _, p := range []*ovnPod{web, data, late} {
		eventually(t, func() string {
			got := o.central.Get("Logical_Switch_Port", p.port(), "addresses")
			if want := fmt.Sprintf(`["%s %s"]`, macs[p], strings.Join(p.ips, " ")); got != want {
				return fmt.Sprintf("port %s has %s, not %s", p.port(), got, want)
			}
			return ""
		})
	}
	n.joined()
	for _, p := range []*ovnPod{web, data} { // no kernel need ask for its gateway again
		require.Equal(t, strings.Trim(o.central.Get("Logical_Router_Port", "ovn-cluster-"+p.Namespace, "mac"), `"`), known[p])
	}
	fresh := n.run("web/new")
	for _, ip := range append(web.ips, late.ips...) {
		require.NotContains(t, fresh.ips, ip, "given twice")
	}
	for _, pair := range [][2]*ovnPod{{web, data}, {data, web}, {fresh, web}, {data, fresh}, {late, fresh}} {
		for _, ip := range pair[1].ips {
			eventually(t, func() string {
				if _, err := pair[0].Try("ping", "-n", "-c", "1", "-W", "1", ip); err != nil {
					return fmt.Sprintf("%s does not reach %s (%s)", pair[0].port(), pair[1].port(), ip)
				}
				return ""
			})
		}
	}
	web.call("CHECK").Must()
	o.using("web", 3)
	o.using("data", 1)
	o.agrees()
	for _, p := range []*ovnPod{web, data, late, fresh} {
		p.end()
	}
	o.using("web", 0)
	o.agrees()
	controller.Stop()
}

// runs waits until the agent has told what the pod has, and says what a kubelet does
// of a pod that runs.
func (p *ovnPod) runs() {
	t := p.n.o.t
	t.Helper()
	pods := p.n.o.c.Client().CoreV1().Pods(p.Namespace)
	eventually(t, func() string {
		got, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
			return p.port() + " has no network-status"
		}
		return ""
	})
	_, err := pods.Patch(t.Context(), p.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"phase":"Running","podIP":%[1]q,"podIPs":[{"ip":%[1]q},{"ip":%[2]q}]}}`, p.ips[0], p.ips[1]), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}
