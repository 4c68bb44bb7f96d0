package cni

import (
	"math"
	"net/netip"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// capRanges is the capability of plugins that take the pod CIDRs.
const capRanges = "ipRanges"

// runtimeConf is what kubelet's runtimes have always told, and what containerd
// and CRI-O tell since.
func runtimeConf(r store.Record, netns string, caps map[string]bool) (*libcni.RuntimeConf, error) {
	pod := r.Pod
	bandwidth, err := bandwidth(pod.Annotations)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	tell := func(capability string, value any, there bool) {
		if there && caps[capability] {
			values[capability] = value
		}
	}
	tell("portMappings", r.Ports, len(r.Ports) > 0)
	tell("bandwidth", bandwidth, len(bandwidth) > 0)
	tell("dns", pod.DNS, !pod.DNS.IsZero())
	tell(capRanges, ranges(r.CIDRs), len(r.CIDRs) > 0)
	tell("io.kubernetes.cri.pod-annotations", pod.Annotations, true)
	tell("cgroupPath", pod.Cgroup, pod.Cgroup != "")
	return &libcni.RuntimeConf{
		ContainerID: pod.Sandbox, NetNS: netns, IfName: netplugin.IfName, CapabilityArgs: values,
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", pod.Sandbox}, {"K8S_POD_UID", pod.UID},
		},
	}, nil
}

// ranges has a set for each of the node's pod CIDRs.
func ranges(cidrs []netip.Prefix) [][]map[string]string {
	var out [][]map[string]string
	for _, c := range cidrs {
		out = append(out, []map[string]string{{"subnet": c.String()}})
	}
	return out
}

// bandwidth is the capability: rates in bit/s, and bursts in bits without a bound
// of their own.
func bandwidth(annotations map[string]string) (map[string]int64, error) {
	rates, err := netplugin.RatesOf(annotations)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for name, rate := range map[string]int64{"ingress": rates.Ingress, "egress": rates.Egress} {
		if rate > 0 {
			out[name+"Rate"], out[name+"Burst"] = rate, math.MaxInt32
		}
	}
	return out, nil
}
