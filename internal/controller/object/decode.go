package object

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Decode fills to with an object's JSON. Keys of its spec that to does not know, those of
// another version of the kind or misspelt ones, it names in the spec's field Unknown, if there
// is one.
func Decode(text []byte, to any) error {
	beside, err := kjson.UnmarshalStrict(text, to, kjson.DisallowUnknownFields)
	var unknown []string
	for _, e := range beside {
		if of := (kjson.FieldError)(nil); errors.As(e, &of) && strings.HasPrefix(of.FieldPath(), "spec.") {
			unknown = append(unknown, of.FieldPath())
		}
	}
	if err != nil || len(unknown) == 0 {
		return err
	}
	slices.Sort(unknown)
	if spec := reflect.ValueOf(to).Elem().FieldByName("Spec"); spec.IsValid() && spec.FieldByName("Unknown").IsValid() {
		spec.FieldByName("Unknown").SetString(strings.Join(unknown, " "))
	}
	return nil
}
