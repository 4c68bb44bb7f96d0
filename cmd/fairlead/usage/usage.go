// Package usage is what all commands have in common: arguments whose refusal is a
// hint.UsageError, and how those who read their hints call them. It knows no
// command.
package usage

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/lib/hint"
)

// EnvCommand is what stands for `fairlead` in the hints of a process whose
// readers cannot call it by its name. The chart sets it for the agent's container,
// and so for what is run there by kubectl.
const EnvCommand = "FAIRLEAD_COMMAND"

// Shell is how those who read this process's hints call `fairlead`.
func Shell() hint.Shell { return hint.Shell(os.Getenv(EnvCommand)) }

// Args marks what an argument validator refuses.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return hint.UsageError{Err: err}
		}
		return nil
	}
}
