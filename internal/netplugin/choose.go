package netplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NoOp is the qualified name of the plugin that leaves all to the engine.
const NoOp = "kubernetes.io/no-op"

// noOps are what users call it.
var noOps = []string{"", "no-op", "noop", NoOp}

// IsNoOp tells that a name means the plugin that does nothing.
func IsNoOp(name string) bool { return slices.Contains(noOps, name) }

// Choose finds the plugin called name. Names that are not qualified, and those
// that two plugins have, are told in the error, which does not hide the plugin:
// it is nil only when there is none of the name.
func Choose(plugins []Plugin, name string) (Plugin, error) {
	if IsNoOp(name) {
		name = NoOp
	}
	known := map[string]Plugin{}
	var names []string
	var errs []error
	for _, p := range plugins {
		n := p.Name()
		if wrong := validation.IsQualifiedName(n); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("network plugin %q: %s", n, strings.Join(wrong, "; ")))
			continue
		}
		if known[n] != nil {
			errs = append(errs, fmt.Errorf("network plugin %q: there is another one of this name", n))
			continue
		}
		known[n] = p
		names = append(names, n)
	}
	if known[name] == nil {
		errs = append(errs, fmt.Errorf("network plugin %q is not known; there are %s", name, strings.Join(names, ", ")))
		return nil, errors.Join(errs...)
	}
	return known[name], errors.Join(errs...)
}
