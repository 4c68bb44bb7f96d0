// Package objecttest has objects in memory, for tests of what reads them.
package objecttest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/controller/object"
)

// Shelf is the objects of one kind by "namespace/name"; "/name" of those without a namespace.
type Shelf[T any] map[string]T

// List gives all, in the order of their names.
func (s Shelf[T]) List() (out []T) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		out = append(out, s[name])
	}
	return out
}

// Get gives one.
func (s Shelf[T]) Get(namespace, name string) (T, bool) {
	o, ok := s[namespace+"/"+name]
	return o, ok
}

// Board is where events go; of outcomes it takes nothing else. It is for one goroutine.
type Board struct {
	object.Outcomes
	Said []string // each the object's key, the reason and the message
	Fail error    // of what is to be written down
}

// Warn writes an event down, unless it is to fail.
func (b *Board) Warn(_ context.Context, of object.Object, e object.Event) error {
	if b.Fail != nil {
		return b.Fail
	}
	b.Said = append(b.Said, fmt.Sprint(of.Key)+" "+e.Reason+" "+e.Message)
	return nil
}
