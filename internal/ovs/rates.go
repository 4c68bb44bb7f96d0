package ovs

import (
	"strconv"

	"github.com/fairlead/fairlead/internal/core"
)

// Units of what the database has of rates: bit/s and bits of a QoS and its queues, kbit/s
// and kbit of policing.
const (
	BitsOfMbit = 1_000_000
	KbitOfMbit = 1_000
)

// Policing limits what a device sends into the bridge: rate in kbit/s and burst in kbit
// (sdn.md, section 4). Without a burst of its own it is 0.8 of the rate.
func Policing(q core.QoS) (rate, burst int) {
	rate = q.EgressMbps * KbitOfMbit
	burst = q.EgressBurstMbit * KbitOfMbit
	if rate == 0 {
		return 0, 0
	}
	if burst == 0 {
		burst = rate * 8 / 10
	}
	return rate, burst
}

// HTB limits what leaves by a device, nil for no limit: the rate in bit/s on the QoS (the
// port) and on Queue 0, which all packets use, and the burst in bits, by default 0.8 s of
// the rate. Kube-OVN writes that burst in bytes and so gets an eighth of it (sdn.md,
// section 4).
func HTB(q core.QoS) *QoS {
	if q.IngressMbps == 0 {
		return nil
	}
	rate := strconv.Itoa(q.IngressMbps * BitsOfMbit)
	burst := q.IngressBurstMbit * BitsOfMbit
	if burst == 0 {
		burst = q.IngressMbps * BitsOfMbit * 8 / 10
	}
	return &QoS{
		Type:       "linux-htb",
		Other:      map[string]string{"max-rate": rate},
		QueueOther: map[string]string{"max-rate": rate, "burst": strconv.Itoa(burst)},
	}
}
