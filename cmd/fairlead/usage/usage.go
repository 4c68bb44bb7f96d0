// Package usage holds the errors that tell a user what to do: of a wrong command
// line, and with a next step. It knows no command.
package usage

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/hint"
)

// EnvCommand is what stands for `fairlead` in the hints of a process whose
// readers cannot call it by its name. The chart sets it for the agent's container,
// and so for what is run there by kubectl.
const EnvCommand = "FAIRLEAD_COMMAND"

// Shell is how those who read this process's hints call `fairlead`.
func Shell() hint.Shell { return hint.Shell(os.Getenv(EnvCommand)) }

// Error marks a wrong command line: nothing was done.
type Error struct{ Err error }

// Error is the words of what it marks.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap gives what it marks.
func (e Error) Unwrap() error { return e.Err }

// Errorf makes an Error.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Args marks what an argument validator refuses.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Error{err}
		}
		return nil
	}
}

// hinted puts a next step on an error.
type hinted struct {
	error
	hint string
}

// Hint puts a next step on an error; what prints it asks for a method Hint.
func Hint(err error, hint string) error { return hinted{err, hint} }

func (e hinted) Unwrap() error { return e.error }

// Hint is the next step.
func (e hinted) Hint() string { return e.hint }
