package metrics

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Traffic is what a node forwarded for a Subnet's network.
type Traffic struct {
	Node, Subnet   string
	CIDR           netip.Prefix
	Out            bool // from its pods; else to them
	Packets, Bytes uint64
}

// Names and labels are Kube-OVN's (sdn.md, 9).
var (
	trafficLabels = []string{"hostname", "subnet_name", "cidr", "direction", "protocol"}
	packetsDesc   = prometheus.NewDesc("ovn_subnet_gateway_packets",
		"Packets that the node forwarded for pods of a subnet, since the rules that count were written.", trafficLabels, nil)
	bytesDesc = prometheus.NewDesc("ovn_subnet_gateway_packet_bytes",
		"Bytes of these packets.", trafficLabels, nil)
)

// traffic reads the packet filter's counters at each scrape.
type traffic struct{ read func() []Traffic }

// Describe implements prometheus.Collector.
func (traffic) Describe(out chan<- *prometheus.Desc) { out <- packetsDesc; out <- bytesDesc }

// Collect implements prometheus.Collector.
func (t traffic) Collect(out chan<- prometheus.Metric) {
	for _, one := range t.read() {
		direction, protocol := "ingress", v1.ProtocolIPv4
		if one.Out {
			direction = "egress"
		}
		if one.CIDR.Addr().Is6() {
			protocol = v1.ProtocolIPv6
		}
		labels := []string{one.Node, one.Subnet, one.CIDR.String(), direction, protocol}
		out <- prometheus.MustNewConstMetric(packetsDesc, prometheus.CounterValue, float64(one.Packets), labels...)
		out <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(one.Bytes), labels...)
	}
}

var probesDesc = prometheus.NewDesc("fairlead_probe_connections_total",
	"Connections of the node to probed ports of pods in Vpcs of their own: led to the pod, or refused.", []string{"result"}, nil)

// probes reads what the proxy of probes counts.
type probes struct{ read func() (led, refused uint64) }

// Describe implements prometheus.Collector.
func (probes) Describe(out chan<- *prometheus.Desc) { out <- probesDesc }

// Collect implements prometheus.Collector.
func (p probes) Collect(out chan<- prometheus.Metric) {
	led, refused := p.read()
	out <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue, float64(led), "led")
	out <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue, float64(refused), "refused")
}
