package folder

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// Problem is something in a file that is not in force as written, or is and
// should be written otherwise.
type Problem struct {
	Where   string // file or URL
	Line    int    // 1-based; 0 when it is about the whole
	Reason  string
	Warning bool // what is written is in force nevertheless
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.Where + ": " + p.Reason
	}
	return fmt.Sprintf("%s:%d: %s", p.Where, p.Line, p.Reason)
}

// Twice is the Problem of an object of which another declaration is in force.
func Twice(id ID, where string, line int, file string, at int) Problem {
	return Problem{Where: where, Line: line, Reason: fmt.Sprintf("%s is declared twice; %s:%d is in force", id, file, at)}
}

// SortProblems orders by file and line.
func SortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Line, b.Line))
	})
}

// Teller logs each Problem once, as long as it lasts, whoever says it. It is safe
// for concurrent use.
type Teller struct {
	Log *slog.Logger

	mu   sync.Mutex
	said map[any][]Problem
	told map[Problem]bool
}

// Tell has all Problems that there are now for one of those who tell.
func (t *Teller) Tell(who any, all []Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said == nil {
		t.said = map[any][]Problem{}
	}
	t.said[who] = all
	now := map[Problem]bool{}
	for _, said := range t.said {
		for _, p := range said {
			p.Warning = false // for another it may be none
			now[p] = true
		}
	}
	for p := range now {
		if !t.told[p] {
			t.Log.Warn("problem in declared objects", "where", p.Where, "line", p.Line, "reason", p.Reason)
		}
	}
	for p := range t.told {
		if !now[p] {
			t.Log.Info("problem in declared objects is gone", "where", p.Where, "line", p.Line, "reason", p.Reason)
		}
	}
	t.told = now
}
