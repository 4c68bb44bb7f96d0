package resolve

import (
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
)

// AnnotationError is the cause behind a refused annotation.
type AnnotationError = annotation.Error

// CheckAnnotations finds the values that Resolve would refuse whatever NADs and
// Subnets there are; each error is a *core.Error around an *AnnotationError. A
// source uses it to tell the author of a file early.
func CheckAnnotations(namespace string, all map[string]string) []error {
	var errs []error
	if _, err := element.Parse(v1.AnnNetworks, all[v1.AnnNetworks], namespace); err != nil {
		errs = append(errs, err)
	}
	if _, err := defaultElement(all, namespace); err != nil {
		errs = append(errs, err)
	}
	for _, p := range annotation.Providers(all) {
		n := annotation.Notes{All: all, Provider: p}
		if _, err := n.Read(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
