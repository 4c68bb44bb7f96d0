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

const (
	mega = 1_000_000 // bits in a Mbit
	kilo = 1_000     // kbit in a Mbit
)

// portFor is what the switch's database holds of a Spec, and what of the request
// it cannot hold, in words.
func portFor(s nic) (ovs.Port, []string) {
	rate, burst := policing(s.QoS)
	q, warnings := queueing(s)
	p := ovs.Port{
		Name: s.HostIf, VLAN: s.VLAN, ExternalIDs: externalIDs(s), Mirror: s.Mirror,
		PolicingRate: rate, PolicingBurst: burst, QoS: q,
	}
	if s.Type == InternalPort {
		p.Type, p.MAC, p.MTU = "internal", s.MAC, s.MTU
		if rate > 0 || q != nil {
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

// policing limits what the pod sends: rate in kbit/s and burst in kbit
// (sdn.md, section 4). Without a burst of its own it is 0.8 of the rate.
func policing(q core.QoS) (rate, burst int) {
	rate = q.EgressMbps * kilo
	burst = q.EgressBurstMbit * kilo
	if rate == 0 {
		return 0, 0
	}
	if burst == 0 {
		burst = rate * 8 / 10
	}
	return rate, burst
}

// queueing limits or delays what the pod gets. A port of the switch has one
// QoS row, so a rate and a delay exclude each other: the rate is kept, because
// a limit may protect others and a delay is an experiment.
func queueing(s nic) (*ovs.QoS, []string) {
	ids := map[string]string{ovs.KeyIfaceID: s.IfaceID, keyPod: s.Pod.String()}
	delay := netem(s.QoS)
	switch {
	case s.QoS.IngressMbps > 0:
		q := htb(s.QoS)
		q.ExternalIDs = ids
		if len(delay) > 0 {
			return q, []string{"latency, jitter, limit and loss are not applied: an Open vSwitch port has one QoS, and ingress_rate has it"}
		}
		return q, nil
	case len(delay) > 0:
		return &ovs.QoS{Type: "linux-netem", Other: delay, ExternalIDs: ids}, nil
	}
	return nil, nil
}

// htb has the rate in bit/s on the QoS (the port) and on Queue 0, which all
// packets use, and the burst in bits: by default 0.8 s of the rate. Kube-OVN
// writes that burst in bytes and so gets an eighth of it (sdn.md, section 4).
func htb(q core.QoS) *ovs.QoS {
	rate := strconv.Itoa(q.IngressMbps * mega)
	burst := q.IngressBurstMbit * mega
	if burst == 0 {
		burst = q.IngressMbps * mega * 8 / 10
	}
	return &ovs.QoS{
		Type:       "linux-htb",
		Other:      map[string]string{"max-rate": rate},
		QueueOther: map[string]string{"max-rate": rate, "burst": strconv.Itoa(burst)},
	}
}

// netem has times in microseconds, the queue's limit in packets, loss in %.
func netem(q core.QoS) map[string]string {
	m := map[string]string{}
	for key, n := range map[string]int{
		"latency": q.LatencyMs * kilo, "jitter": q.JitterMs * kilo,
		"limit": q.LimitPackets, "loss": q.LossPercent,
	} {
		if n > 0 {
			m[key] = strconv.Itoa(n)
		}
	}
	return m
}
