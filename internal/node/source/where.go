package source

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Where is the file that a pod stands in; "" when none names it any more.
func (f *File) Where(uid types.UID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, v := range f.known {
		if slices.ContainsFunc(v.good, func(d declared) bool { return d.pod.UID == uid }) {
			return name
		}
	}
	return ""
}
