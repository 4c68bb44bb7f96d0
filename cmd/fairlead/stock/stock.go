// Package stock has the commands that make a stock node's container runtime use
// Fairlead, and that tell which configuration a runtime takes: `install node`,
// `uninstall node`, `install-cni`, `conf explain`. It parses their flags; the work
// is internal/install/node's and internal/install/explain's.
package stock

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/doctor"
)

// Print writes a value in the format of -o; text writes it for people.
type Print func(w io.Writer, v any, text func(io.Writer, view.Options) error) error

// Tools are what the program's commands have in common.
type Tools struct {
	StateDir string
	// Within bounds a command by --timeout, Agent is the client of --socket,
	// Output adds -o, Beside finds a program beside this one.
	Within func(*cobra.Command) (context.Context, context.CancelFunc)
	Agent  func(*cobra.Command) *client.Client
	Output func(cmd *cobra.Command, formats ...string) Print
	Beside func(name string) (string, error)
	Run    doctor.Runner
	// Failed ends a command whose output has said what is wrong.
	Failed error
}

// RunPlugin is package explain's.
func (t Tools) RunPlugin(ctx context.Context, path string, env []string, stdin string) ([]byte, error) {
	return t.Run(ctx, doctor.Command{Argv: []string{path}, Env: env, Stdin: stdin})
}
