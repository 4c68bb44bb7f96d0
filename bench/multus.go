package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
)

// Row 4: a pod's default network and a second one by NAD, chosen by the pod's
// annotation in a real API server, which gets the network status.

// Both networks of every side, but for the one of ours whose networks are its own.
const (
	delegateConf = `{"cniVersion":"1.0.0","name":"bench","type":"bridge","bridge":"cni0","mtu":1400,
"isGateway":true,"ipMasq":false,"ipam":` + ipamConf + `}`
	macvlanConf = `{"cniVersion":"1.0.0","type":"macvlan","master":"under0","mode":"bridge","mtu":1400,
"ipam":{"type":"host-local","ranges":[[{"subnet":"10.21.0.0/16"}]]}}`
	// ownNAD is a second NIC of our own.
	ownNAD = `{"cniVersion":"1.0.0","type":"fairlead","provider":"net1.bench.ovn"}`
)

// cluster makes a node with an API server that has the network net1.
func (b *bench) cluster(pods int, nad string) (*clustered, error) {
	n, err := b.newNode(pods)
	if err != nil {
		return nil, err
	}
	c := &clustered{plugin: plugin{node: n}, names: map[*pod]object{}}
	err = n.command("ip", "link", "add", "under0", "type", "veth", "peer", "name", "under1")
	for _, link := range []string{"under0", "under1"} {
		err = errors.Join(err, n.command("ip", "link", "set", link, "up"))
	}
	if err == nil {
		c.api, err = b.startAPI(n)
	}
	if err == nil {
		err = c.api.installCRDs(b, "crds")
	}
	if err == nil {
		err = c.declare(nad)
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	go c.watch()
	return c, nil
}

// declare makes the namespace, the NAD, and for our side the Subnets and the Node
// that claims them; peers ignore these.
func (c *clustered) declare(nad string) error {
	subnet := func(name, provider, cidr, gateway string, first bool) map[string]any {
		return map[string]any{"apiVersion": "kubeovn.io/v1", "kind": "Subnet", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"default": first, "protocol": "IPv4", "cidrBlock": cidr, "gateway": gateway, "provider": provider}}
	}
	objects := []struct {
		path string
		body map[string]any
	}{
		{"/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": benchNS}}},
		{"/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": benchNode}}},
		{nadPath, map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
			"metadata": map[string]any{"name": "net1"}, "spec": map[string]any{"config": nad}}},
		{"/apis/kubeovn.io/v1/subnets", subnet("bench", "ovn", "10.16.0.0/16", "10.16.0.1", true)},
		{"/apis/kubeovn.io/v1/subnets", subnet("net1", "net1.bench.ovn", "10.17.0.0/16", "10.17.0.1", false)},
	}
	for _, o := range objects {
		if _, err := c.api.do(http.MethodPost, o.path, o.body); err != nil {
			return err
		}
	}
	return nil
}

// oursClustered is our side. With foreign it runs the peers' delegates;
// otherwise both networks are its own.
func (b *bench) oursClustered(pods int, foreign bool) (*clustered, error) {
	nad := ownNAD
	if foreign {
		nad = macvlanConf
	}
	c, err := b.cluster(pods, nad)
	if err != nil {
		return nil, err
	}
	return b.oursAt(c, foreign)
}

// oursAt starts our agent in a cluster that has all objects, or closes its node.
func (b *bench) oursAt(c *clustered, foreign bool) (_ *clustered, err error) {
	conf := `{"cniVersion":"1.0.0","name":"fairlead","type":"fairlead"}`
	if foreign {
		conf = `{"cniVersion":"1.0.0","name":"fairlead","type":"fairlead","delegates":[` + delegateConf + `]}`
	}
	c.path, c.conf = b.bin("fairlead-cni"), []byte(conf)
	// The delegates' bridge needs no Open vSwitch, and the peers' node has none.
	if !foreign {
		c.after = c.node.barrier
		err = c.node.startOVS()
	}
	if err == nil {
		c.agent, err = c.node.start(b.bin("fairlead"), "agent", "--node-name", benchNode, "--kubeconfig", c.api.kubeconfig(),
			"--state-dir", "/var/lib/fairlead", "--mtu", "1400", "--cni-bin-dir", b.tool(""), "--conf-dir", c.node.dir, "--http", readyAddr)
		ready := c.ready // the gateways are interfaces too
		if foreign {
			ready = c.serves
		}
		if err == nil {
			err = c.agent.await(ready)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.node.close())
	}
	return c.begun()
}

// serves asks for the delegates, as a runtime does: without Open vSwitch the
// agent is not ready for its own networks, and never will be.
func (c *clustered) serves() error {
	conf := `{"cniVersion":"1.1.0","name":"fairlead","type":"fairlead","delegates":[` + delegateConf + `]}`
	probe := plugin{node: c.node, path: c.path, conf: []byte(conf)}
	return c.node.inside(func() error {
		return probe.Call(&worker{}, "STATUS", &pod{name: "probe", container: "probe"})
	})
}

const readyAddr = "127.0.0.1:10665"

func (c *clustered) ready() error {
	resp, err := c.api.http.Get("http://" + readyAddr + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	why, err := io.ReadAll(resp.Body)
	return errors.Join(fmt.Errorf("the agent is not ready: %s", bytes.TrimSpace(why)), err)
}

// multusThin is Multus' plugin, which asks the API server itself.
func (b *bench) multusThin(pods int) (*clustered, error) {
	c, err := b.cluster(pods, macvlanConf)
	if err != nil {
		return nil, err
	}
	c.path = b.peer("multus")
	c.conf = []byte(`{"cniVersion":"1.0.0","name":"multus","type":"multus","binDir":"` + b.tool("") + `","kubeconfig":"` +
		c.api.kubeconfig() + `","logLevel":"error","delegates":[` + delegateConf + `]}`)
	return c.begun()
}

// multusThick is Multus' daemon behind its shim. The daemon knows the API
// server only from inside a pod, and writes the shim's configuration itself.
func (b *bench) multusThick(pods int) (*clustered, error) {
	c, err := b.cluster(pods, macvlanConf)
	if err != nil {
		return nil, err
	}
	c.path = b.peer("multus-shim")
	dir := filepath.Join(c.node.dir, "net.d")
	config := filepath.Join(c.node.dir, "daemon-config.json")
	err = errors.Join(c.serviceAccount(), os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "10-bench.conflist"), []byte(`{"cniVersion":"1.0.0","name":"bench","plugins":[`+delegateConf+`]}`), 0o600),
		os.WriteFile(config, []byte(`{"cniVersion":"1.0.0","socketDir":"/run/multus","binDir":"`+b.tool("")+`","confDir":"`+dir+
			`","cniConfigDir":"`+dir+`","multusConfigFile":"auto","multusAutoconfigDir":"`+dir+`","logLevel":"error","logToStderr":true}`), 0o600))
	var d *daemon
	if err == nil {
		d, err = c.node.start("env", "KUBERNETES_SERVICE_HOST="+apiHost, "KUBERNETES_SERVICE_PORT="+apiPort, "MULTUS_NODE_NAME=bench",
			"PATH="+os.Getenv("PATH"), b.peer("multus-daemon"), "-config", config)
	}
	if err == nil {
		err = d.await(func() (err error) {
			c.conf, err = os.ReadFile(filepath.Join(dir, "00-multus.conf"))
			if err == nil && !json.Valid(c.conf) {
				err = errors.New("00-multus.conf is not complete")
			}
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, c.node.close())
	}
	return c.begun()
}

// serviceAccount puts where a pod would have it what a client needs.
func (c *clustered) serviceAccount() error {
	const dir = "/run/secrets/kubernetes.io/serviceaccount"
	return c.node.inside(func() error {
		ca, err := os.ReadFile(filepath.Join(c.api.dir, "certs", "apiserver.crt"))
		return errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/ca.crt", ca, 0o600),
			os.WriteFile(dir+"/token", []byte(apiToken), 0o600), os.WriteFile(dir+"/namespace", []byte(benchNS), 0o600))
	})
}

// begun attaches one pod and detaches it: that makes the bridge, which stays.
func (c *clustered) begun() (*clustered, error) {
	pods := pick(c, 1)
	err := renew(c, pods)
	for _, command := range []string{"ADD", "DEL"} {
		if err == nil {
			_, err = batch(c, command, pods, 1)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.node.close())
	}
	return c, nil
}

// multusRow is row 4.
func multusRow(b *bench) (lines []line, err error) {
	var sides []side
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.Node().close())
		}
	}()
	for _, start := range []func() (*clustered, error){
		func() (*clustered, error) { return b.oursClustered(mostPods, true) },
		func() (*clustered, error) { return b.multusThick(mostPods) },
		func() (*clustered, error) { return b.multusThin(mostPods) },
		func() (*clustered, error) { return b.oursClustered(mostPods, false) },
	} {
		s, err := start()
		if err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	gate := atLeast(3.5, 7)
	metrics := func(what string, gate bound) []metric {
		m := []metric{addTime("4", what, gate), addCPU("4", what, gate), addRate("4", what, gate)}
		m[2].value = func(s sample) float64 { return float64(len(s.add.took)) / s.add.done.Seconds() }
		m[2].from = 10
		return m
	}
	thick := against(1, metrics("two networks, status written / Multus thick", gate))
	for i := range thick { // what two NICs of our own get: the ratio is in the column of the floor
		thick[i].floor = true
	}
	thin := against(2, metrics("two networks, status written / Multus thin", bound{}))
	b.note("row 4: bridge and macvlan with host-local on every side, from the same configurations. The floor is two NICs of ours on Open vSwitch")
	b.note("row 4: fifty thin Multus at a time do not end: their calls of the API server time out")
	lines, err = b.climb(contest{sides: sides, floor: 3, metrics: slices.Concat(thick, thin)}, shortLadder[:2], 0)
	if err != nil {
		return lines, err
	}
	more, err := b.climb(contest{sides: slices.Delete(slices.Clone(sides), 2, 3), floor: 2, metrics: thick}, shortLadder[2:], 0)
	return append(lines, more...), err
}
