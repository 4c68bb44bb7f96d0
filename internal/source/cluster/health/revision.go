package health

import (
	"context"
	"fmt"
	"strconv"
	"sync"
)

// Revisions are what was seen of one kind's resourceVersions, which the API server takes
// from one counter of its database. Where the counter is lower than it was, the database
// was restored from an old snapshot, and what watches have told no longer holds: a server
// takes a watch from a version that is still to come, without an error, and tells nothing
// until the counter has got there. Only a list tells what there is now.
type Revisions struct {
	mu    sync.Mutex
	seen  uint64
	backs int
}

// BackError tells that a database is an older one than before.
type BackError struct{ Was, Now uint64 }

// Error implements error.
func (e *BackError) Error() string {
	return fmt.Sprintf("the API server's database was restored from an old snapshot: its revision was %d and is %d", e.Was, e.Now)
}

// Saw takes a version in that a list, a watch or an object had. What is no number
// says nothing.
func (r *Revisions) Saw(version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && n > r.seen {
		r.seen = n
	}
}

// Seen is the highest of the versions, 0 for none.
func (r *Revisions) Seen() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// Backs counts how often the database was an older one.
func (r *Revisions) Backs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backs
}

// Compare asks for the version of a list that the database itself answers, be it of one
// object. A *BackError tells that it is lower than what was seen before it was asked;
// from then on it is the highest. Other errors are ask's.
func (r *Revisions) Compare(ctx context.Context, ask func(context.Context) (string, error)) error {
	was := r.Seen()
	version, err := ask(ctx)
	if err != nil {
		return err
	}
	now, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion of a list: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now >= was {
		r.seen = max(r.seen, now)
		return nil
	}
	r.seen, r.backs = now, r.backs+1
	return &BackError{Was: was, Now: now}
}
