package testbed

import (
	"fmt"
	"time"
)

// tick is the pause between two looks at something that gives no event.
const tick = 5 * time.Millisecond

func pause() { time.Sleep(tick) }

// until repeats look until it returns nil; after patience it returns the last
// error. It decides when a test gives up, never whether something was fast.
func until(what string, look func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := look()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, patience, err)
		}
		pause()
	}
}
