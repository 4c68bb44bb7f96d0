package ovs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/ovs"
)

func TestPortOfQoS(t *testing.T) {
	for _, c := range []struct {
		name        string
		qos         core.QoS
		rate, burst int
		row         *ovs.QoS
	}{
		{name: "none"},
		{name: "egress", qos: core.QoS{EgressMbps: 1}, rate: 1000, burst: 800},
		{name: "egress burst", qos: core.QoS{EgressMbps: 10, EgressBurstMbit: 3}, rate: 10000, burst: 3000},
		{name: "a burst without a rate limits nothing", qos: core.QoS{EgressBurstMbit: 3, IngressBurstMbit: 3}},
		{name: "ingress", qos: core.QoS{IngressMbps: 300}, row: htb("300000000", "240000000")},
		{name: "ingress burst", qos: core.QoS{IngressMbps: 3, IngressBurstMbit: 5}, row: htb("3000000", "5000000")},
		{name: "delay", qos: core.QoS{LatencyMs: 10, JitterMs: 2, LimitPackets: 100, LossPercent: 5}, row: &ovs.QoS{
			Type: "linux-netem", Other: map[string]string{"latency": "10000", "jitter": "2000", "limit": "100", "loss": "5"},
		}},
		{name: "rate and delay", qos: core.QoS{IngressMbps: 3, LatencyMs: 10, LossPercent: 1}, row: htb("3000000", "2400000", "latency", "10000", "loss", "1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := core.Spec{Key: core.Key{Container: "c", IfName: "eth0"}, Pod: core.Pod{Namespace: "ns1", Name: "web"}}
			s.NIC = &core.NICSpec{IfaceID: "web.ns1", Settings: core.Settings{Tuning: core.Tuning{QoS: c.qos}}, OVS: &core.OVSPort{HostIf: "h"}}
			p, warnings := ovsdriver.Port(t, s)
			require.Equal(t, []int{c.rate, c.burst}, []int{p.PolicingRate, p.PolicingBurst})
			require.Empty(t, warnings)
			if c.row != nil {
				c.row.ExternalIDs = map[string]string{"iface-id": "web.ns1", "pod": "ns1/web"}
			}
			require.Equal(t, c.row, p.QoS)
		})
	}
}

func htb(rate, burst string, more ...string) *ovs.QoS {
	q := &ovs.QoS{
		Type: "linux-htb", Other: map[string]string{"max-rate": rate},
		QueueOther: map[string]string{"max-rate": rate, "burst": burst},
	}
	for i := 0; i < len(more); i += 2 {
		q.Other[more[i]] = more[i+1]
	}
	return q
}
