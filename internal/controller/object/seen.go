package object

import "sync"

// Seen is what mattered of objects at the last news of them. Of most news nothing does:
// each pod changes some Subnet's counts, and nodes tell that they live. Its zero value
// knows none. It is safe for concurrent use.
type Seen struct {
	mu  sync.Mutex
	was map[Key]string
}

// Changed tells that what matters of an object is not what it was; now is "" for one that
// is gone. The first news of an object counts.
func (s *Seen) Changed(of Key, now string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.was[of]
	switch {
	case now == "":
		delete(s.was, of)
	case s.was == nil:
		s.was = map[Key]string{of: now}
	default:
		s.was[of] = now
	}
	return !known || was != now
}

// Forget has the next news of each object count.
func (s *Seen) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.was = nil
}
