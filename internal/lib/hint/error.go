package hint

import "fmt"

// UsageError marks a wrong command line: nothing was done.
type UsageError struct{ Err error }

// Error is the words of what it marks.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap gives what it marks.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// hinted puts a next step on an error.
type hinted struct {
	error
	hint string
}

// On puts a next step on an error; what prints it asks for a method Hint.
func On(err error, hint string) error { return hinted{err, hint} }

func (e hinted) Unwrap() error { return e.error }

// Hint is the next step.
func (e hinted) Hint() string { return e.hint }
