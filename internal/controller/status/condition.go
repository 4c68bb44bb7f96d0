package status

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Reasons of conditions.
const (
	CarriedOut = "CarriedOut"
	Refused    = "Refused"
	// Fields are set that nobody carries out.
	Fields = "FieldsNotImplemented"
)

// Conditions are Ready, and NotImplemented with the fields that are set and
// not carried out.
func Conditions(generation int64, err error, undone []string) []v1.Condition {
	ready := v1.Condition{Type: v1.ConditionReady, Status: "True", Reason: CarriedOut, ObservedGeneration: generation}
	if err != nil {
		ready.Status, ready.Reason, ready.Message = "False", Refused, err.Error()
	}
	fields := v1.Condition{Type: v1.ConditionNotImplemented, Status: "False", Reason: CarriedOut, ObservedGeneration: generation}
	if len(undone) > 0 {
		fields.Status, fields.Reason, fields.Message = "True", Fields, strings.Join(undone, ", ")
	}
	return []v1.Condition{ready, fields}
}

// Merge dates conditions after those that an object has; false for none that
// is new. Conditions of other types are others'.
func Merge(have, want []v1.Condition) (out []v1.Condition, changed bool) {
	now := metav1.Now()
	for _, w := range want {
		w.LastTransitionTime, w.LastUpdateTime = now, now
		i := slices.IndexFunc(have, func(c v1.Condition) bool { return c.Type == w.Type })
		if i >= 0 {
			h := have[i]
			if h.Status == w.Status {
				w.LastTransitionTime = h.LastTransitionTime
			}
			if h.Status == w.Status && h.Reason == w.Reason && h.Message == w.Message && h.ObservedGeneration == w.ObservedGeneration {
				out = append(out, h)
				continue
			}
		}
		out, changed = append(out, w), true
	}
	return out, changed
}
