package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/kernel/counters"
)

// NIC is one interface of a pod with what it has counted, from the pod's side.
type NIC struct {
	Namespace, Pod, Interface string
	Address                   string // several with commas between
	counters.Traffic
}

// nicDescs are per pod, and therefore there only where somebody asks for them.
var nicLabels = []string{"namespace", "pod", "interface", "address", "direction"}

var (
	nicPackets = prometheus.NewDesc("fairlead_pod_network_packets_total", "Packets that an interface of a pod received or transmitted.", nicLabels, nil)
	nicBytes   = prometheus.NewDesc("fairlead_pod_network_bytes_total", "Bytes of these packets.", nicLabels, nil)
	nicDrops   = prometheus.NewDesc("fairlead_pod_network_drops_total", "Packets that were dropped on their way to the pod (receive) or from it (transmit).", nicLabels, nil)
)

// nics reads the interfaces at each scrape.
type nics struct{ read func() []NIC }

// Describe implements prometheus.Collector.
func (nics) Describe(out chan<- *prometheus.Desc) {
	out <- nicPackets
	out <- nicBytes
	out <- nicDrops
}

// Collect implements prometheus.Collector. Of an interface that is told twice, as while a
// pod of the name is made anew, the first counts.
func (n nics) Collect(out chan<- prometheus.Metric) {
	type key struct{ namespace, pod, ifName, address string }
	told := map[key]bool{}
	for _, one := range n.read() {
		k := key{one.Namespace, one.Pod, one.Interface, one.Address}
		if told[k] {
			continue
		}
		told[k] = true
		for _, c := range []struct {
			desc   *prometheus.Desc
			rx, tx uint64
		}{{nicPackets, one.RxPackets, one.TxPackets}, {nicBytes, one.RxBytes, one.TxBytes}, {nicDrops, one.RxDropped, one.TxDropped}} {
			for direction, v := range map[string]uint64{"receive": c.rx, "transmit": c.tx} {
				out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(v), one.Namespace, one.Pod, one.Interface, one.Address, direction)
			}
		}
	}
}
