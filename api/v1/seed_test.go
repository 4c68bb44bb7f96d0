package v1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// seeds are manifests as people write them for Kube-OVN, with the keys that our
// types have no field for.
var seeds = []struct {
	name, manifest string
	unknown        []string
}{
	{"provider network", `
apiVersion: kubeovn.io/v1
kind: ProviderNetwork
metadata: {name: net1}
spec:
  defaultInterface: eth0
  customInterfaces:
  - interface: enp1s0
    nodes: [node1]
  excludeNodes: [node2]`, nil},
	{"vlan", `{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: vlan1000}, spec: {id: 1000, provider: net1}}`, nil},
	{"vlan, old keys", `{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: old}, spec: {vlanId: 1000, providerInterfaceName: net1}}`, nil},
	{"vlan, a slip", `{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: v}, spec: {id: 7, providerNetwork: net1}}`, []string{"spec.providerNetwork"}},
	{"underlay subnet", `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: subnet1}, spec: {protocol: IPv4, cidrBlock: 100.100.0.0/16, gateway: 100.100.0.1, vlan: vlan1000}}`, nil},
	{"subnet of a NAD", `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: macvlan}, spec: {protocol: IPv4, provider: macvlan.default, cidrBlock: 172.17.0.0/16, gateway: 172.17.0.1, excludeIps: [172.17.0.0..172.17.0.10]}}`, nil},
	{"subnet, two slips", `{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: s}, spec: {cidr: 10.1.0.0/16, excludeIPs: [10.1.0.1], acls: [{direction: to-lport, tier: 2}]}}`,
		[]string{"spec.cidr", "spec.excludeIPs", "spec.acls[0].tier"}},
	{"vpc", `
apiVersion: kubeovn.io/v1
kind: Vpc
metadata: {name: tenant}
spec:
  namespaces: [ns1]
  staticRoutes: [{cidr: 0.0.0.0/0, nextHopIP: 10.0.1.254, policy: policyDst}]
  policyRoutes: [{action: drop, match: ip4.src==10.0.1.0/24 && ip4.dst==10.0.1.250, priority: 11}]
  vpcPeerings: [{remoteVpc: other, localConnectIP: 169.254.0.1/30}]`, nil},
	{"pool", `{apiVersion: kubeovn.io/v1, kind: IPPool, metadata: {name: pool-1}, spec: {subnet: ovn-default, ips: ["10.16.0.201", 10.16.0.210..10.16.0.220], namespaces: [ns-1]}}`, nil},
	{"vip", `{apiVersion: kubeovn.io/v1, kind: Vip, metadata: {name: vip01}, spec: {subnet: ovn-default, v4ip: "10.16.0.121"}}`, nil},
	{"reserved address", `{apiVersion: kubeovn.io/v1, kind: IP, metadata: {name: vm-dhcp.default}, spec: {subnet: ovn-default, podType: "", namespace: default, podName: vm-dhcp, v4IpAddress: 10.16.0.11}}`, nil},
	{"security group", `
apiVersion: kubeovn.io/v1
kind: SecurityGroup
metadata: {name: sg-example}
spec:
  allowSameGroupTraffic: true
  egressRules: [{ipVersion: ipv4, policy: allow, priority: 1, protocol: all, remoteAddress: 10.16.0.13, remoteType: address}]`, nil},
	{"rates", `{apiVersion: kubeovn.io/v1, kind: QoSPolicy, metadata: {name: q}, spec: {shared: false, bindingType: EIP, bandwidthLimitRules: [{name: in, rateMax: "1", burstMax: "1", priority: 1, direction: ingress}]}}`, nil},
}

func TestSeedManifests(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	require.NoError(t, v1.AddToScheme(s))
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
	for _, seed := range seeds {
		_, _, err := strict.Decode([]byte(seed.manifest), nil, nil)
		if len(seed.unknown) == 0 {
			require.NoError(t, err, seed.name)
			continue
		}
		require.True(t, runtime.IsStrictDecodingError(err), "%s: %v", seed.name, err)
		require.Equal(t, len(seed.unknown), strings.Count(err.Error(), "unknown field"), "%s: %v", seed.name, err)
		for _, key := range seed.unknown {
			require.ErrorContains(t, err, `unknown field "`+key+`"`, seed.name)
		}
	}
}
