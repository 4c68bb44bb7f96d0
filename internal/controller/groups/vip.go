package groups

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// Forbids is why a pod may not have a Vip's address; "" if it may.
func Forbids(o *v1.Vip, p object.Pod) string {
	switch {
	case o.Spec.Namespace != p.Namespace:
		return fmt.Sprintf("its spec.namespace is %q", o.Spec.Namespace)
	case !chosen(o.Spec.Selector, p.Labels):
		return "the pod's labels are not those of its spec.selector"
	}
	return ""
}

// chosen tells that labels have all that a selector says, each "key: value". One that
// cannot be read chooses nobody.
func chosen(selector []string, labels map[string]string) bool {
	return !slices.ContainsFunc(selector, func(s string) bool {
		key, value, ok := strings.Cut(s, ":")
		got, has := labels[strings.TrimSpace(key)]
		return !ok || !has || got != strings.TrimSpace(value)
	})
}
