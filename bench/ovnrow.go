package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
)

// Row 6: ADD on OVN. Each side has a whole node of one chassis: API server, OVN's
// central part, our controller, which has given all pods their addresses before an
// ADD, ovn-controller and Open vSwitch. They differ in who does the ADD.

// ovnRate is what each pod is limited to, both ways, in Mbit/s.
const ovnRate = "100"

// onOVN is a side whose pods are ports of OVN.
type onOVN struct {
	plugin
	c     *controlled
	pods  map[*pod]ovnPod // the present ones
	told  *tracker
	agent *daemon // of ours
}

// ovnPod is a pod with what the controller gave it.
type ovnPod struct{ name, uid, mac, ip, gateway string }

// onOVN makes such a node, without who does the ADD.
func (b *bench) onOVN(pods int) (*onOVN, error) {
	c, err := b.controlled()
	if err != nil {
		return nil, err
	}
	o := &onOVN{plugin: plugin{node: c.node}, c: c, pods: map[*pod]ovnPod{}}
	if err := o.begin(pods); err != nil {
		return nil, errors.Join(err, fmt.Errorf("%s", logs(c.node)), c.node.close())
	}
	return o, nil
}

func (o *onOVN) begin(pods int) error {
	n := o.node
	if err := n.morePods(pods); err != nil {
		return err
	}
	if err := n.startOVS(); err != nil {
		return err
	}
	if err := n.command("ovs-vsctl", "--timeout=60", "set", "open_vswitch", ".", "external_ids:system-id="+benchNode,
		"external_ids:ovn-remote=unix:"+sbSocket, "external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=127.0.0.1",
		"external_ids:ovn-bridge="+bridge, "external_ids:ovn-bridge-datapath-type=netdev",
		"--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail_mode=secure"); err != nil {
		return err
	}
	if _, err := n.startAs("ovn-controller", "env", "OVN_RUNDIR=/run/ovn", "ovn-controller", "unix:/run/openvswitch/db.sock", "--verbose=console:warn"); err != nil {
		return err
	}
	if _, err := o.c.start(); err != nil {
		return err
	}
	err := o.c.api.make([]thing{
		{"/api/v1/namespaces", map[string]any{"metadata": called(benchNS, nil)}},
		{"/api/v1/nodes", map[string]any{"metadata": called(benchNode, nil),
			"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.0.2.10"}}}}},
		subnetThing("bench", "10.16.0.0/16", "10.16.0.1"),
	})
	if err == nil {
		err = o.c.idle()
	}
	if err == nil {
		o.told, err = o.c.api.track(podPath, annotated)
	}
	o.settle = o.followed
	return err
}

// followed is the barrier: everything is in the southbound database, and Open
// vSwitch has done what it was told.
func (o *onOVN) followed() error {
	if err := o.node.command("ovn-nbctl", "--timeout=60", "--db=unix:"+nbSocket, "--wait=hv", "sync"); err != nil {
		return err
	}
	return o.node.barrier()
}

// Prepare makes new Pod objects, and returns when they have their addresses and
// OVN knows their ports.
func (o *onOVN) Prepare(pods []*pod) error {
	var gone []string
	for _, p := range pods {
		if old, has := o.pods[p]; has {
			gone = append(gone, podPath+"/"+old.name)
		}
	}
	if err := o.c.api.drop(gone); err != nil {
		return err
	}
	names := map[*pod]string{}
	var things []thing
	for _, p := range pods {
		names[p] = p.name + "-" + p.container[:8]
		t := simulated(benchNS, names[p], benchNode, nil)
		about, _ := t.body["metadata"].(map[string]any)
		about["annotations"] = map[string]string{"ovn.kubernetes.io/ingress_rate": ovnRate, "ovn.kubernetes.io/egress_rate": ovnRate}
		things = append(things, t)
	}
	if err := o.c.api.make(things); err != nil {
		return err
	}
	for _, p := range pods {
		if _, err := o.told.await(names[p]); err != nil {
			return err
		}
		given, err := o.given(names[p])
		if err != nil {
			return err
		}
		o.pods[p] = given
	}
	if err := o.c.idle(); err != nil {
		return err
	}
	return o.followed()
}

// given reads what the controller gave a pod.
func (o *onOVN) given(name string) (out ovnPod, err error) {
	text, err := o.c.api.do(http.MethodGet, podPath+"/"+name, nil)
	if err != nil {
		return out, err
	}
	var p struct {
		Metadata struct {
			UID         string
			Annotations map[string]string
		}
	}
	err = json.Unmarshal(text, &p)
	note := func(field string) string { return p.Metadata.Annotations["ovn.kubernetes.io/"+field] }
	return ovnPod{name, p.Metadata.UID, note("mac_address"), note("ip_address"), note("gateway")}, err
}

// Call is plugin's, for the pod's object. Who reads no API server is told in the
// environment what the controller gave.
func (o *onOVN) Call(w *worker, command string, p *pod) error {
	given := o.pods[p]
	env := slices.DeleteFunc(environ(command, filepath.Dir(o.path), p), func(v string) bool { return strings.HasPrefix(v, "CNI_ARGS=") })
	env = append(env, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+benchNS+";K8S_POD_NAME="+given.name+
		";K8S_POD_INFRA_CONTAINER_ID="+p.container+";K8S_POD_UID="+given.uid,
		"BENCH_POD="+given.name, "BENCH_IFACE="+given.name+"."+benchNS, "BENCH_MAC="+given.mac, "BENCH_IP="+given.ip,
		"BENCH_GATEWAY="+given.gateway, "BENCH_RATE="+ovnRate)
	_, err := w.run(env, o.conf, o.path)
	return err
}

// oursOnOVN is the agent.
func (b *bench) oursOnOVN(pods int) (*onOVN, error) {
	o, err := b.onOVN(pods)
	if err != nil {
		return nil, err
	}
	o.path, o.conf = b.bin("fairlead-cni"), []byte(oursConf)
	o.agent, err = o.node.start(b.bin("fairlead"), "agent", "--ovn", "--node-name", benchNode, "--kubeconfig", o.c.api.kubeconfig(),
		"--state-dir", "/var/lib/fairlead", "--mtu", "1400", "--cni-bin-dir", b.tool(""), "--conf-dir", o.node.dir, "--http", readyAddr)
	if err == nil {
		agent := clustered{api: o.c.api}
		err = o.agent.await(agent.ready)
	}
	if err != nil {
		return nil, errors.Join(err, fmt.Errorf("%s", logs(o.node)), o.node.close())
	}
	return o, nil
}

// kubeovnOnOVN is the reference's sequence (kubeovn/).
func (b *bench) kubeovnOnOVN(pods int) (*onOVN, error) {
	o, err := b.onOVN(pods)
	if err != nil {
		return nil, err
	}
	o.path, o.conf = b.peer("kube-ovn-steps"), []byte(oursConf)
	return o, nil
}

// floorOnOVN is the bare transaction, with the pod's rates, then ovn-installed.
func (b *bench) floorOnOVN(pods, commits int) (*onOVN, error) {
	o, err := b.onOVN(pods)
	if err != nil {
		return nil, err
	}
	o.path, o.conf = b.peer("floor-plugin"), []byte(`{}`)
	if err := startFloor(o.node, b.peer("floor-agent"), commits, "-ovn"); err != nil {
		return nil, errors.Join(err, o.node.close())
	}
	return o, nil
}

// ovnLadder is how many ADDs at once.
var ovnLadder = []rung{{1, 20, 4}, {20, 60, 20}}

// ovnRow is row 6.
func ovnRow(b *bench) (lines []line, err error) {
	var sides []side
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.Node().close())
		}
	}()
	for _, start := range []func() (*onOVN, error){
		func() (*onOVN, error) { return b.oursOnOVN(allPods) },
		func() (*onOVN, error) { return b.kubeovnOnOVN(allPods) },
		func() (*onOVN, error) { return b.floorOnOVN(allPods, 2) },
	} {
		s, err := start()
		if err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	what := "ADD on OVN until ovn-installed, rates / Kube-OVN's sequence"
	peer := []metric{addTime("6", what, atLeast(4, 6)), addCPU("6", what, bound{}), addRate("6", what, atLeast(8, 12))}
	peer[2].from = 10
	for i := range peer {
		peer[i].floor = true
	}
	least := []metric{addTime("6", "the same / floor", atMost(1.5, 1.5))}
	least[0].above = true
	b.note("row 6: addresses were given before; the peer is a program of the bench that starts Kube-OVN's processes, with conflict probing off and without its looks at the gateway")
	return b.climb(contest{sides: sides, floor: 2, metrics: slices.Concat(against(1, peer), against(2, least))}, ovnLadder, 0, standing)
}
