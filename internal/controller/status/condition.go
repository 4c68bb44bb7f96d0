package status

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Reasons of conditions.
const (
	CarriedOut = "CarriedOut"
	Refused    = "Refused"
	// Fields are set that nobody carries out.
	Fields = "FieldsNotImplemented"
	// Kind is one of which nobody carries out anything.
	Kind = "KindNotImplemented"
)

// Conditions are Ready, and NotImplemented with the fields that are set and
// not carried out.
func Conditions(generation int64, err error, undone []string) []v1.Condition {
	ready := v1.Condition{Type: v1.ConditionReady, Status: "True", Reason: CarriedOut, ObservedGeneration: generation}
	if err != nil {
		ready.Status, ready.Reason, ready.Message = "False", Refused, err.Error()
	}
	return []v1.Condition{ready, Undone(generation, undone)}
}

// Undone is NotImplemented with the fields that are set and not carried out.
func Undone(generation int64, fields []string) v1.Condition {
	c := v1.Condition{Type: v1.ConditionNotImplemented, Status: "False", Reason: CarriedOut, ObservedGeneration: generation}
	if len(fields) > 0 {
		c.Status, c.Reason, c.Message = "True", Fields, strings.Join(fields, ", ")
	}
	return c
}

// Nothing is NotImplemented of an object of which nobody carries out anything.
func Nothing(generation int64) v1.Condition {
	return v1.Condition{
		Type: v1.ConditionNotImplemented, Status: "True", Reason: Kind, Message: "the object is kept whole, and nobody carries out objects of its kind",
		ObservedGeneration: generation,
	}
}

// WithNothing are an object's conditions, as the API server tells them, with the one that
// nobody carries it out; news tells that it had another one, or none.
func WithNothing(conditions []any, generation int64) (out []any, news bool) {
	var have []v1.Condition
	for _, c := range conditions {
		one, _ := c.(map[string]any)
		if one["type"] != v1.ConditionNotImplemented {
			out = append(out, c)
			continue
		}
		var is v1.Condition
		if runtime.DefaultUnstructuredConverter.FromUnstructured(one, &is) == nil {
			have = append(have, is)
		}
	}
	want, news := Merge(have, []v1.Condition{Nothing(generation)})
	return append(out, want[0]), news
}

// Gateway is condition GatewayReady of a Subnet: of a centralized one, and of one that was
// that before. why tells what is wrong with gateways, also while one of them is ready.
func Gateway(o *v1.Subnet, centralized, ready bool, why string) []v1.Condition {
	c := v1.Condition{Type: v1.ConditionGateway, Status: "True", Reason: CarriedOut, Message: why, ObservedGeneration: o.Generation}
	had := slices.ContainsFunc(o.Status.Conditions, func(h v1.Condition) bool { return h.Type == c.Type })
	switch {
	case !centralized && !had:
		return nil
	case !centralized:
		c.Reason, c.Message = "Distributed", "pods leave by their own node"
	case !ready:
		c.Status, c.Reason = "False", "NoGatewayNode"
	case why != "":
		c.Reason = "SomeNotReady"
	}
	return []v1.Condition{c}
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
