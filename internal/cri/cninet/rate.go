package cninet

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a rate, in bit/s: what kubelet's plugins have always accepted.
var (
	leastRate = resource.MustParse("1k")
	mostRate  = resource.MustParse("1P")
)

// rates is the capability bandwidth: rates in bit/s, and bursts in bits without a
// bound of their own.
func rates(annotations map[string]string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, d := range []string{"ingress", "egress"} {
		key := "kubernetes.io/" + d + "-bandwidth"
		text, ok := annotations[key]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", key, err)
		}
		if q.Cmp(leastRate) < 0 || q.Cmp(mostRate) > 0 {
			return nil, fmt.Errorf("annotation %s: %s is not between 1k and 1P", key, text)
		}
		out[d+"Rate"], out[d+"Burst"] = q.Value(), math.MaxInt32
	}
	return out, nil
}
