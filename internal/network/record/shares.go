package record

import "github.com/fairlead/fairlead/internal/core"

// Shares are the foreign networks and what remains on each: a plugin's GC is
// by network.
type Shares map[string]*Share

// Share is one of them.
type Share struct {
	Call core.Exec
	Live []core.Key
}

// Of is the share of a call's network, nil where that knows no GC.
func (s Shares) Of(call core.Exec) *Share {
	if call.DisableGC {
		return nil
	}
	id := call.Network + "\x00" + call.Type
	if s[id] == nil {
		s[id] = &Share{Call: call}
	}
	return s[id]
}

// Add adds the attachments of specs to theirs.
func (s Shares) Add(specs []core.Spec) {
	for _, spec := range specs {
		if spec.Kind() != core.KindDelegate {
			continue
		}
		if n := s.Of(*spec.Exec); n != nil {
			n.Live = append(n.Live, spec.Key)
		}
	}
}
