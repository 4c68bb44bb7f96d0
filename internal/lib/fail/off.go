//go:build !failpoint

package fail

// Here marks a crash point. In a product build it is nothing.
func Here(string) {}
