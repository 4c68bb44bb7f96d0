package takeover

import (
	"maps"
	"slices"
	"strings"
)

// Programs of Kube-OVN, by the name of their workload.
const (
	controllerName = "kube-ovn-controller"
	cniName        = "kube-ovn-cni"
)

// workloads are Kube-OVN's, by the names that its installation gives them.
var workloads = []string{controllerName, cniName, "ovn-central", "ovs-ovn", "ovs-ovn-dpdk", "kube-ovn-pinger", "kube-ovn-monitor", "ovn-ic-controller", "ovn-ic-server"}

// rule is what becomes of a flag of kube-ovn-controller or kube-ovn-cni. The first of
// its fields that applies counts; none: the flag is the agent's too, means nothing
// here, or says what is always so.
type rule struct {
	value  string   // the chart's value that takes it as it stands
	only   []string // values that have a counterpart, "" among them
	why    string   // any other stands in the way for
	change string   // any other is told as a change
}

var (
	off = []string{"", "false"}
	on  = []string{"", "true"}
)

// rules are the flags of which something is to be said. default-cidr is none of them:
// the Subnets are objects already.
var rules = map[string]rule{
	"node-switch-cidr":         {value: "ovn.joinCIDR"},
	"service-cluster-ip-range": {value: "ovn.serviceCIDR"},
	"iface":                    {value: "flags.iface"},
	"mtu":                      {value: "flags.mtu"},
	"encap-checksum":           {value: "flags.encap-checksum"},
	"enable-mirror":            {value: "flags.enable-mirror"},
	"network-type": {value: "flags.network-type", only: []string{"", "geneve", "vxlan"},
		why: "tunnels are geneve or vxlan; a Subnet is on a VLAN by its own field"},
	"cluster-router":             {only: []string{"", "ovn-cluster"}, why: "the router that joins Subnets is called ovn-cluster"},
	"node-switch":                {only: []string{"", "join"}, why: "the Subnet of the nodes' own ports is called join"},
	"pod-nic-type":               {only: []string{"", "veth-pair", "internal-port"}, why: "pods have a veth pair or an internal port"},
	"pod-default-fip-type":       {only: []string{""}, why: "pods get no floating address by themselves"},
	"enable-lb-svc":              {only: off, why: "Services of type LoadBalancer are not carried out"},
	"enable-anp":                 {only: off, why: "AdminNetworkPolicy is not carried out"},
	"enable-ovn-ipsec":           {only: off, why: "tunnels are not encrypted"},
	"enable-ecmp":                {only: off, why: "a Subnet leaves by its pods' own nodes"},
	"enable-tproxy":              {only: off, why: "kubelet's probes do not reach pods of another Vpc"},
	"enable-lb":                  {only: on, change: "OVN answers pods for Services; `enableLb: false` of a Subnet leaves them to kube-proxy"},
	"enable-np":                  {only: on, change: "NetworkPolicies come into force"},
	"enable-ovn-lb-prefer-local": {only: off, change: "endpoints on the pod's own node are not preferred"},
	"keep-vm-ip":                 {only: on, change: "a virtual machine keeps its address as long as it is there"},
	"secure-serving":             {only: off, change: "metrics are served without TLS"},
}

// args are a program's flags: --name=value, --name value, or --name alone.
func args(list []string) map[string]string {
	out := map[string]string{}
	for i, a := range list {
		name, isFlag := strings.CutPrefix(a, "--")
		if !isFlag {
			continue
		}
		name, value, has := strings.Cut(name, "=")
		switch {
		case has:
		case i+1 < len(list) && !strings.HasPrefix(list[i+1], "-"):
			value = list[i+1]
		default:
			value = "true"
		}
		out[name] = value
	}
	return out
}

// flags says what becomes of a program's command line.
func (p *Plan) flags(part Part) {
	given := args(part.Args)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		r, value := rules[name], given[name]
		flag := part.Name + " --" + name
		switch listed := slices.Contains(r.only, value); {
		case r.only != nil && !listed && r.why != "":
			p.block(flag+"="+value, r.why)
		case r.only != nil && !listed:
			p.change("%s=%s: %s", flag, value, r.change)
		case r.value != "" && value != "" && (r.only == nil || listed):
			p.Values = append(p.Values, Value{r.value, value, flag})
		}
	}
}
