package ovs

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

const protoKernel = unix.RTPROT_KERNEL

// qosOf is the inverse of Port for rates; a burst that is the default comes
// back as none, which is the same request.
func qosOf(st ovs.PortState) core.QoS {
	q := core.QoS{EgressMbps: st.PolicingRate / kilo}
	if _, def := policing(q); st.PolicingBurst != def {
		q.EgressBurstMbit = st.PolicingBurst / kilo
	}
	if st.QoS == nil {
		return q
	}
	num := func(m map[string]string, key string, unit int) int {
		n, err := strconv.Atoi(m[key])
		if err != nil {
			return 0
		}
		return n / unit
	}
	other := st.QoS.Other
	q.IngressMbps = num(other, "max-rate", mega)
	if b := st.QoS.QueueOther["burst"]; q.IngressMbps > 0 && b != htb(q).QueueOther["burst"] {
		q.IngressBurstMbit = num(st.QoS.QueueOther, "burst", mega)
	}
	q.LatencyMs, q.JitterMs = num(other, "latency", kilo), num(other, "jitter", kilo)
	q.LimitPackets, q.LossPercent = num(other, "limit", 1), num(other, "loss", 1)
	return q
}
