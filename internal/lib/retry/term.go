package retry

import "time"

// Term is when something is to be renewed that ends by the clock on the wall, whatever
// becomes of that clock meanwhile: set back, it would have the end look far away. The zero
// value is ready. It is not safe for concurrent use.
type Term struct {
	Wall func() time.Time // the clock on the wall; nil = time.Now

	of  string
	end time.Time // by the clock that nobody sets
}

// Left is in which time it is due, not after 0 for now: at a time by the clock on the wall,
// or when that would have been by what has passed since this was first asked of the same
// thing, and never later than most after that.
func (t *Term) Left(of string, due time.Time, most time.Duration) time.Duration {
	now := time.Now
	if t.Wall != nil {
		now = t.Wall
	}
	left := due.Round(0).Sub(now())
	if t.of != of || t.end.IsZero() {
		t.of, t.end = of, time.Now().Add(min(left, most))
	}
	return min(left, time.Until(t.end))
}
