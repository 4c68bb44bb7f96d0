package engine

import "github.com/fairlead/fairlead/internal/core"

// outdated tells that a DEL which waited for an agent was called before the
// attachment that its key names now was made: it is about an earlier one, and
// dropped. A DEL of another boot is older than what this boot made. Of an adopted
// record nobody knows the age: its DEL may be what was missed. The caller has the
// container's turn.
func (e *Engine) outdated(req core.Request) bool {
	if !req.Waited {
		return false
	}
	h, ok := e.Journal.Head(req.Key)
	if !ok || h.Network == "" {
		return false
	}
	called, made := req.Called, h.Called
	old := called.Compare(made) < 0
	if called.BootID != "" && called.BootID != made.BootID {
		old = made.BootID == e.BootID
	}
	if old {
		e.Log.Warn("late DEL dropped: the attachment that is there was made after it was called",
			"container", req.Key.Container, "ifname", req.Key.IfName, "called", called.Wall, "attached", made.Wall)
	}
	return old
}
