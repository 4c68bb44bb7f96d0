package netplugin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a rate, in bit/s: what kubelet's plugins have always accepted.
var (
	leastRate = resource.MustParse("1k")
	mostRate  = resource.MustParse("1P")
)

// Rates are what a pod may receive and send, in bit/s; 0: no bound.
type Rates struct {
	Ingress int64 // towards the pod
	Egress  int64
}

// RatesOf reads kubernetes.io/ingress-bandwidth and egress-bandwidth.
func RatesOf(annotations map[string]string) (r Rates, err error) {
	if r.Ingress, err = rate(annotations, "kubernetes.io/ingress-bandwidth"); err != nil {
		return Rates{}, err
	}
	if r.Egress, err = rate(annotations, "kubernetes.io/egress-bandwidth"); err != nil {
		return Rates{}, err
	}
	return r, nil
}

func rate(annotations map[string]string, key string) (int64, error) {
	text, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %w", key, err)
	}
	if q.Cmp(leastRate) < 0 || q.Cmp(mostRate) > 0 {
		return 0, fmt.Errorf("annotation %s: %s is not between 1k and 1P", key, text)
	}
	return q.Value(), nil
}
