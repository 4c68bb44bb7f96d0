package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// declarations are the same for every network, which is a NetworkAttachmentDefinition db of
// the namespace KIND with subnet 10.9.0.0/29.
const declarations = `
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: KIND, name: fixed}
spec: {interfaces: [{name: net1, network: KIND/db, ips: [10.9.0.3/29]}]}
---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: KIND, name: set}
spec: {statefulSet: set, interfaces: [{name: net1, network: KIND/db, ipRange: 10.9.0.4-10.9.0.5/29}]}
---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: KIND, name: outside}
spec: {interfaces: [{name: net1, network: KIND/db, ips: [10.9.1.3/29]}]}
---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: KIND, name: asks}
spec: {interfaces: [{name: net1, network: KIND/db, ips: [10.9.0.6/29]}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: KIND, name: asks, annotations: {k8s.v1.cni.cncf.io/networks: '[{"name":"db","interface":"net1","ips":["10.9.0.2"]}]'}}
spec: {containers: [{name: c, image: busybox}]}
---
apiVersion: net.fairlead.io/v1alpha1
kind: PodNetwork
metadata: {namespace: KIND, name: least}
spec: {interfaces: [{name: net1, network: KIND/db, bandwidth: {minMbps: 5}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: KIND, name: one, labels: {net.fairlead.io/pod-network: "true"}}
data:
  twice: '{"interface":"net1","network":"KIND/db","ip":"10.9.0.6/29"}'
  tagged: '{"interface":"net1","network":"KIND/db","vlan":4095}'
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: KIND, name: two, labels: {net.fairlead.io/pod-network: "true"}}
data: {twice: '{"interface":"net1","network":"KIND/db","ip":"10.9.0.6/29"}'}
`

// outcomes are what the pods of declarations get, whatever their network is.
var outcomes = []struct {
	pod, addr string
	code      uint
	reason    string
}{
	{"fixed", "10.9.0.3/29", 0, ""},
	{"fixed", "10.9.0.3/29", 0, ""}, // made anew
	{"set-0", "10.9.0.4/29", 0, ""},
	{"set-1", "10.9.0.5/29", 0, ""},
	{"set-2", "", 103, "OrdinalOutOfRange"},
	{"outside", "", 103, "AddressOutsideSubnet"},
	{"asks", "", 105, "AnnotationConflict"},
	{"twice", "", 105, "AmbiguousDeclaration"},
	{"tagged", "", 102, "InvalidVLAN"},
	{"least", "", 102, "DriverCannot"},
}

// rangeOf is the subnet of declarations for a network that has no Subnet.
const rangeOf = `"ipam":{"type":"host-local","subnet":"10.9.0.0/29"}`

// declaredOn is one kind of network and its objects.
type declaredOn struct {
	kind, objects string
}

// networksHere are those that this kernel has.
var networksHere = []declaredOn{
	{"switch", nadObject("switch/db", `{"cniVersion":"1.0.0","type":"fairlead","provider":"db.switch.ovn"}`) + `
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: db}
spec: {cidrBlock: 10.9.0.0/29, provider: db.switch.ovn}
`},
	{"macvlan", nadObject("macvlan/db", `{"cniVersion":"1.0.0","type":"macvlan","master":"up0",`+rangeOf+`}`)},
	{"host-device", nadObject("host-device/db", `{"cniVersion":"1.0.0","type":"host-device","device":"up1",`+rangeOf+`}`)},
}

// all are the objects of one kind of network.
func (d declaredOn) all() string {
	return d.objects + "\n---" + strings.ReplaceAll(declarations, "KIND", d.kind)
}

// tryAll has the pods of each outcome come and go; add gives the interface's addresses, or
// the error's code and text.
func (d declaredOn) tryAll(t *testing.T, add func(pod string) (addrs []string, code uint, text string)) {
	for _, o := range outcomes {
		addrs, code, text := add(d.kind + "/" + o.pod)
		require.Equal(t, o.code, code, "%s/%s: %s", d.kind, o.pod, text)
		if o.code == 0 {
			require.Equal(t, []string{o.addr}, addrs, "%s/%s", d.kind, o.pod)
		} else {
			require.Contains(t, text, o.reason+": ", "%s/%s", d.kind, o.pod)
		}
	}
}

// TestDeclaredOnEveryNetwork: the same declarations, with the network's name changed, give
// the same addresses and the same errors on each kind of network.
func TestDeclaredOnEveryNetwork(t *testing.T) {
	t.Parallel()
	declaredOnNode(t, networksHere)
}

func declaredOnNode(t *testing.T, networks []declaredOn) {
	files := map[string]string{}
	for _, d := range networks {
		files[d.kind+".yaml"] = d.all()
	}
	n := startNode(t, files)
	for _, link := range []string{"up0", "up1"} {
		n.Run("ip", "link", "add", link, "type", "veth", "peer", "name", "far-"+link)
		n.Run("ip", "link", "set", "far-"+link, "up")
	}
	n.Run("ip", "link", "set", "up0", "up")
	before := n.Inventory()
	for _, d := range networks {
		d.tryAll(t, func(pod string) ([]string, uint, string) { return comesAndGoes(t, n, pod) })
	}
	n.RequireNoLeaks(before)
}

// comesAndGoes makes a pod and deletes it again.
func comesAndGoes(t *testing.T, n *testbed.Node, name string) (addrs []string, code uint, text string) {
	p := n.NewPod(name)
	defer p.Delete()
	answer := p.CNI("ADD", ownConf)
	if answer.ExitCode == 0 {
		addrs = addresses(t, p, "net1")
		p.CNI("CHECK", withPrev(ownConf, answer.Stdout)).Must()
	} else {
		e := answer.Err()
		code, text = e.Code, e.Msg+e.Details
	}
	p.CNI("DEL", ownConf).Must()
	return addrs, code, text
}
