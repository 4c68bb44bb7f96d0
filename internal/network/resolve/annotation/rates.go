package annotation

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

const mbit = 1_000_000 // bits

// Bandwidth is CNI's own form: rates in bit/s, bursts in bit, ingress towards
// the pod (CNI conventions, "bandwidth").
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// Fault says which value cannot be, and why; why is empty when all can.
func (b *Bandwidth) Fault() (field, value, why string) {
	switch {
	case b == nil:
	case b.IngressBurst > 0 && b.IngressRate == 0:
		return "ingressBurst", fmt.Sprint(b.IngressBurst), "is set without ingressRate"
	case b.EgressBurst > 0 && b.EgressRate == 0:
		return "egressBurst", fmt.Sprint(b.EgressBurst), "is set without egressRate"
	case max(b.IngressRate, b.EgressRate, b.IngressBurst, b.EgressBurst) > MaxMbit*mbit:
		return "", fmt.Sprint(*b), "exceeds 1 Tbit/s"
	}
	return "", "", ""
}

// QoS is the same in our own units; what is not named there is zero.
func (b Bandwidth) QoS() core.QoS {
	return core.QoS{
		IngressMbps: toMbit(b.IngressRate), IngressBurstMbit: burstMbit(b.IngressBurst),
		EgressMbps: toMbit(b.EgressRate), EgressBurstMbit: burstMbit(b.EgressBurst),
	}
}

// toMbit rounds up: a rate below 1 Mbit/s must not become "no limit".
func toMbit(bits uint64) int { return int(min((bits+mbit-1)/mbit, math.MaxInt32)) } //nolint:gosec // bounded by MaxInt32

// burstMbit knows that runtimes write MaxInt32 for "no burst given".
func burstMbit(bits uint64) int {
	if bits >= math.MaxInt32 {
		return 0
	}
	return toMbit(bits)
}

// KubeRates reads kubernetes.io/{ingress,egress}-bandwidth, 1k to 1P as
// Kubernetes bounds them.
func KubeRates(all map[string]string) (Bandwidth, error) {
	var b Bandwidth
	for _, f := range []struct {
		key string
		to  *uint64
	}{{v1.AnnIngressBandwidth, &b.IngressRate}, {v1.AnnEgressBandwidth, &b.EgressRate}} {
		text := all[f.key]
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() < 1000 || q.Value() > 1e15 {
			return b, Refused(core.CodeValue, f.key, text, "is not a quantity of bit/s from 1k to 1P")
		}
		*f.to = uint64(q.Value()) //nolint:gosec // at least 1000
	}
	return b, nil
}
