package ovs

import (
	"maps"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Keys of Interface external_ids beside those of package ovs. The first four
// are Kube-OVN's (sdn.md, section 2); with the others a lost journal can be
// rebuilt.
const (
	keyPodName      = "pod_name"
	keyPodNamespace = "pod_namespace"
	keyPodNetns     = "pod_netns"
	keyIP           = "ip" // addresses without length, separated by commas
	keyIfName       = "ifname"
	keyMAC          = "mac"
	keyNetwork      = "network"
	keySubnet       = "subnet"
	keyDefault      = "default"            // "true" on the cluster's default network
	keySecure       = v1.FieldPortSecurity // "true" and its VIPs, or "false"; none: as OVSPort.Secure
	keyPod          = "pod"                // of QoS and Queue: "<namespace>/<name>"
)

// portFor is what the switch's database holds of a Spec, and what of the request
// it cannot hold, in words.
func portFor(s nic) (ovs.Port, []string) {
	rate, burst := ovs.Policing(s.QoS)
	p := ovs.Port{
		Name: s.HostIf, VLAN: s.VLAN, ExternalIDs: externalIDs(s), Mirror: s.Mirror,
		PolicingRate: rate, PolicingBurst: burst, QoS: queueing(s),
	}
	var warnings []string
	if s.Type == InternalPort {
		p.Type, p.MAC, p.MTU = "internal", s.MAC, s.MTU
		if rate > 0 || p.QoS != nil {
			warnings = append(warnings, "rates and delays are not applied: Open vSwitch sets them by a device's name, and an internal port leaves its namespace")
		}
	}
	return p, warnings
}

func externalIDs(s nic) map[string]string {
	var ips []string
	for _, a := range s.Addrs {
		ips = append(ips, a.Addr().String())
	}
	ids := map[string]string{
		ovs.KeyVendor: ovs.Vendor, ovs.KeyIfaceID: s.IfaceID, ovs.KeyContainer: s.Key.Container,
		keyPodName: s.Pod.Name, keyPodNamespace: s.Pod.Namespace, keyPodNetns: s.Netns.Path,
		keyIP: strings.Join(ips, ","), keyIfName: s.Key.IfName, keyMAC: s.MAC.String(),
		keyNetwork: s.Network, keySubnet: s.Subnet,
	}
	if s.Default {
		ids[keyDefault] = "true"
	}
	switch {
	case s.Secure && s.Open:
		ids[keySecure] = "false"
	case s.Secure:
		ids[keySecure] = strings.TrimSuffix("true,"+string(s.VIPs), ",")
	}
	maps.DeleteFunc(ids, func(_, v string) bool { return v == "" })
	return ids
}

// queueing limits or delays what the pod gets. A port of the switch has one QoS row: with
// a rate it is linux-htb, which leaves alone what else its other_config says, and the
// delay is the driver's (delay.go). There it stands for an agent that lost its journal.
func queueing(s nic) *ovs.QoS {
	ids := map[string]string{ovs.KeyIfaceID: s.IfaceID, keyPod: s.Pod.String()}
	delay := netem(s.QoS)
	if q := ovs.HTB(s.QoS); q != nil {
		q.ExternalIDs = ids
		maps.Copy(q.Other, delay)
		return q
	}
	if len(delay) == 0 {
		return nil
	}
	return &ovs.QoS{Type: "linux-netem", Other: delay, ExternalIDs: ids}
}

const micros = 1_000 // of a millisecond

// netem has times in microseconds, the queue's limit in packets, loss in %.
func netem(q core.QoS) map[string]string {
	m := map[string]string{}
	for key, n := range map[string]int{
		"latency": q.LatencyMs * micros, "jitter": q.JitterMs * micros,
		"limit": q.LimitPackets, "loss": q.LossPercent,
	} {
		if n > 0 {
			m[key] = strconv.Itoa(n)
		}
	}
	return m
}
