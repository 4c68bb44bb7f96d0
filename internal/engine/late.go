package engine

import "github.com/fairlead/fairlead/internal/core"

// outdated tells that a DEL which waited for an agent was called before the
// attachment that its key names now was made: it is about an earlier one, and
// dropped. A DEL of another boot is older than what this boot made. Of an adopted
// record nobody knows the age: its DEL may be what was missed.
func (e *Engine) outdated(req core.Request, rec *core.Record) bool {
	if !req.Waited || adopted(*rec) {
		return false
	}
	called, made := req.Called, rec.Called()
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
