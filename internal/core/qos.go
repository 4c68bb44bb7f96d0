package core

// QoS are the rates of one interface, seen from the pod as Kube-OVN names
// them: ingress is towards the pod. Zero means unlimited.
type QoS struct {
	IngressMbps      int `json:"ingressMbps,omitempty"`      // Mbit/s towards the pod
	IngressBurstMbit int `json:"ingressBurstMbit,omitempty"` // Mbit
	EgressMbps       int `json:"egressMbps,omitempty"`       // Mbit/s from the pod
	EgressBurstMbit  int `json:"egressBurstMbit,omitempty"`  // Mbit
	LatencyMs        int `json:"latencyMs,omitempty"`        // netem
	JitterMs         int `json:"jitterMs,omitempty"`         // netem
	LimitPackets     int `json:"limitPackets,omitempty"`     // netem
	LossPercent      int `json:"lossPercent,omitempty"`      // netem
}

// Rated tells that one of the rates is limited.
func (q QoS) Rated() bool { return q.IngressMbps != 0 || q.EgressMbps != 0 }

// WithRates is q with the rates of b.
func (q QoS) WithRates(b QoS) QoS {
	q.IngressMbps, q.IngressBurstMbit = b.IngressMbps, b.IngressBurstMbit
	q.EgressMbps, q.EgressBurstMbit = b.EgressMbps, b.EgressBurstMbit
	return q
}
