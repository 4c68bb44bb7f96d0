package e2e

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"

	crds "github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

// testLeased: declared addresses and MACs on macvlan, which no Subnet has, are leased with
// the API server before the interface is made and given back when it is gone; another pod
// is told who has it; an agent that is killed at any point of it loses nothing and leaves
// nothing.
func testLeased(n *kubeNode) {
	n.Run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	n.c.Apply(nadObject(n.name+"/db", `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge"}`))
	declares := func(pod string) string {
		return `{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + n.name + `, name: ` + pod + `}, spec: {interfaces: [{name: net1, network: ` + n.name + `/db, ips: [10.7.0.16/24], mac: "02:0a:09:00:01:10"}]}}`
	}
	n.c.Apply(declares("db") + "\n---\n" + declares("second"))
	domain := n.name + ".db."
	lease := func(name string) string {
		n.t.Helper()
		return n.c.Kubectl("get", "addressleases.net.fairlead.io", domain+name, "--ignore-not-found", "-o", "jsonpath={.status.phase} {.spec.owner.pod} {.spec.holder.sandbox} {.spec.holder.node}")
	}
	both := func(want string) {
		n.t.Helper()
		for _, name := range []string{"10.7.0.16", "mac.020a09000110"} {
			eventually(n.t, func() string {
				if have := lease(name); have != want {
					return fmt.Sprintf("%s is %q, not %q", name, have, want)
				}
				return ""
			})
		}
	}
	has := func(p *kubePod) {
		n.t.Helper()
		require.Equal(n.t, []string{"10.7.0.16/24"}, addresses(n.t, p.Pod, "net1"))
		both("Bound db " + p.ContainerID + " " + n.name)
	}
	before := n.Inventory()
	first := n.makePod("db", nil)
	eventually(n.t, func() string { // what is declared comes by watches of its own
		if err := first.cni("ADD").Err(); err != nil {
			return err.Msg + err.Details
		}
		if len(addresses(n.t, first.Pod, "net1")) == 0 {
			first.cni("DEL").Must()
			return "no net1"
		}
		return ""
	})
	has(first)
	second := n.makePod("second", nil)
	refused := second.cni("ADD").MustCode(11)
	require.Contains(n.t, refused.Msg+refused.Details, "AddressHeld: address 10.7.0.16 in "+strings.TrimSuffix(domain, ".")+" is held by pod "+n.name+"/db on node "+n.name)
	has(first)
	second.end()
	n.erase("second")
	first.end()
	both("Reserved db  ")

	for _, op := range []string{"ADD", "DEL"} {
		points := n.leasePoints(op)
		require.NotEmpty(n.t, points)
		for _, point := range points {
			n.t.Logf("%s is cut at %s", op, point)
			p := &kubePod{n: n, Pod: n.NewPod(n.name + "/db"), uid: first.uid}
			if op == "DEL" {
				p.cni("ADD").Must()
			}
			n.Crash(point)
			_ = p.cni(op).Err()
			require.Error(n.t, n.agent.Wait())
			n.agent = n.Agent(n.args...)
			n.agent.WaitReady()
			if op == "ADD" {
				p.cni("ADD").Must()
				has(p)
			}
			p.end()
			if op == "DEL" { // what it has not given back is for the pod's next sandbox: the pod is there
				p = &kubePod{n: n, Pod: n.NewPod(n.name + "/db"), uid: first.uid}
				p.cni("ADD").Must()
				p.end()
			}
			both("Reserved db  ")
		}
	}
	n.erase("db")
	n.RequireNoLeaks(before)
	fromRange(n)
	imported(n)
	claimed(n)
	n.RequireNoLeaks(before)
}

// fromRange: pods of a network whose ipam is whereabouts get the lowest free address each,
// without its program; one that is given back is given again, and an agent that is killed
// between the lease and its journal keeps none.
func fromRange(n *kubeNode) {
	network := n.name + "/ranged"
	n.c.Apply(nadObject(network, `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge","ipam":{"type":"whereabouts",
		"range":"10.8.0.0/24","range_start":"10.8.0.10","range_end":"10.8.0.13","exclude":["10.8.0.12/32"],"network_name":"`+n.name+`","log_level":"debug"}}`))
	pods := map[string]*kubePod{}
	start := func(name string) *kubePod {
		pods[name] = n.makePod(name, map[string]string{"k8s.v1.cni.cncf.io/networks": network})
		return pods[name]
	}
	end := func(name string) {
		pods[name].end()
		n.erase(name)
		delete(pods, name)
	}
	given := func(name, want string) {
		n.t.Helper()
		require.Equal(n.t, []string{want + "/24"}, addresses(n.t, pods[name].Pod, "net1"))
		require.Equal(n.t, "Bound "+name, n.c.Kubectl("get", "addressleases.net.fairlead.io", "whereabouts."+n.name+"."+want, "-o", "jsonpath={.status.phase} {.spec.owner.pod}"))
	}
	for i, name := range []string{"a", "b", "c"} {
		start(name).cni("ADD").Must()
		given(name, []string{"10.8.0.10", "10.8.0.11", "10.8.0.13"}[i])
	}
	pods["b"].cni("CHECK").Must()
	none := start("d").cni("ADD").MustCode(103)
	require.Contains(n.t, none.Msg+none.Details, "range 10.8.0.0/24 of network "+network+": no free address")
	end("b")
	for _, point := range n.leasePoints("ADD") {
		n.t.Logf("ADD is cut at %s", point)
		n.Crash(point)
		_ = pods["d"].cni("ADD").Err()
		require.Error(n.t, n.agent.Wait())
		n.agent = n.Agent(n.args...)
		n.agent.WaitReady()
		pods["d"].cni("ADD").Must()
		given("d", "10.8.0.11")
		pods["d"].cni("DEL").Must()
	}
	pods["d"].cni("ADD").Must()
	given("d", "10.8.0.11")
	for name := range pods {
		end(name)
	}
}

// imported: an address that the program whereabouts has given to a pod, and that was imported,
// is given to no other pod, but to that pod's next sandbox, and when the pod is gone to others.
func imported(n *kubeNode) {
	crds.IPPools(n.t, n.c)
	network := n.name + "/inherited"
	n.c.Apply(nadObject(network, `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge",
		"ipam":{"type":"whereabouts","range":"10.8.2.0/24","range_start":"10.8.2.10","range_end":"10.8.2.11","network_name":"`+n.name+`"}}`))
	start := func(name string) *kubePod {
		return n.makePod(name, map[string]string{"k8s.v1.cni.cncf.io/networks": network})
	}
	has := func(p *kubePod, want string) {
		n.t.Helper()
		p.cni("ADD").Must()
		require.Equal(n.t, []string{want + "/24"}, addresses(n.t, p.Pod, "net1"))
	}
	n.c.ReportBoot(n.name, n.BootID())
	old := start("old")
	n.c.Apply(fmt.Sprintf(`{apiVersion: whereabouts.cni.cncf.io/v1alpha1, kind: IPPool, metadata: {namespace: kube-system, name: %s-10.8.2.0-24}, spec: {range: 10.8.2.0/24, allocations: {"10": {id: former, podref: %s/old, ifname: net1}}}}`, n.name, n.name))
	require.Regexp(n.t, `10\.8\.2\.10 +`+n.name+`/old +net1 +adopted`, n.Fairlead("import", "whereabouts", "--apply", "--kubeconfig", n.args[1]))
	next := start("next")
	has(next, "10.8.2.11")
	third := start("third")
	third.cni("ADD").MustCode(103)
	has(old, "10.8.2.10")
	old.end()
	n.erase("old")
	has(third, "10.8.2.10")
	for name, p := range map[string]*kubePod{"next": next, "third": third} {
		p.end()
		n.erase(name)
	}
}

// claimed: an IPAMClaim is told which address was chosen for the pod that refers to it, another
// pod with it has the same, also when the agent is killed at any point of it, and it is free
// when the claim is gone.
func claimed(n *kubeNode) {
	crds.IPAMClaims(n.t, n.c)
	n.c.Apply(nadObject(n.name+"/disks", `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge",
		"ipam":{"type":"whereabouts","range":"10.8.1.0/24","range_start":"10.8.1.10","range_end":"10.8.1.20","network_name":"`+n.name+`"}}`))
	example := strings.ReplaceAll(documentedBlocks(n.t)[2], "namespace: bank", "namespace: "+n.name)
	claim, pod, _ := strings.Cut(example, "\n---\n")
	n.c.Apply(claim)
	asks := regexp.MustCompile(`cncf\.io/networks: '(.*)'`).FindStringSubmatch(pod)
	require.NotNil(n.t, asks)
	start := func(name string) *kubePod {
		return n.makePod(name, map[string]string{"k8s.v1.cni.cncf.io/networks": asks[1]})
	}
	end := func(p *kubePod, name string) {
		p.end()
		n.erase(name)
	}
	lease := func(want string) {
		n.t.Helper()
		eventually(n.t, func() string {
			have := n.c.Kubectl("get", "addressleases.net.fairlead.io", "whereabouts."+n.name+".10.8.1.10", "--ignore-not-found", "-o", "jsonpath={.status.phase} {.spec.owner.pod} {.spec.declaredBy}")
			if have != want {
				return have + " is not " + want
			}
			return ""
		})
	}
	has := func(p *kubePod, name string) {
		n.t.Helper()
		require.Equal(n.t, []string{"10.8.1.10/24"}, addresses(n.t, p.Pod, "net1"))
		require.Equal(n.t, "10.8.1.10/24", n.c.Kubectl("-n", n.name, "get", "ipamclaims", "vm.disks", "-o", "jsonpath={.status.ips[*]}"))
		lease("Bound " + name + " IPAMClaim " + n.name + "/vm.disks")
	}
	for i, point := range append(n.leasePoints("ADD"), "lease.filled") {
		n.t.Logf("ADD is cut at %s", point)
		name := fmt.Sprint("vm-", i)
		p := start(name)
		n.c.Kubectl("-n", n.name, "patch", "ipamclaims", "vm.disks", "--subresource=status", "--type=merge", "-p", `{"status":null}`)
		n.Crash(point)
		_ = p.cni("ADD").Err()
		require.Error(n.t, n.agent.Wait())
		n.agent = n.Agent(n.args...)
		n.agent.WaitReady()
		p.cni("ADD").Must()
		has(p, name)
		p.cni("CHECK").Must()
		end(p, name)
		lease("Reserved " + name + " IPAMClaim " + n.name + "/vm.disks")
	}
	next := start("next")
	next.cni("ADD").Must()
	has(next, "next")
	other := start("other")
	held := other.cni("ADD").MustCode(11)
	require.Contains(n.t, held.Msg+held.Details, "AddressHeld: address 10.8.1.10 in whereabouts."+n.name+" is held by pod "+n.name+"/next")
	end(other, "other")
	n.c.Delete(claim)
	end(next, "next")
	lease("")
}

// leasePoints are the crash points about leases that an operation passes.
func (n *kubeNode) leasePoints(op string) []string {
	return map[string][]string{"ADD": {"lease.claimed", "lease.bound"}, "DEL": {"lease.released"}}[op]
}
