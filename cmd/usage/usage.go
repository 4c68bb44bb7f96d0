// Package usage is what the programs of people have in common: how a command line
// is run, how an error and its next step are told, and arguments whose refusal is
// a hint.UsageError. It knows no command.
package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

// EnvCommand is what stands for `fairlead` in the hints of a process whose
// readers cannot call it by its name. The chart sets it for the agent's container,
// and so for what is run there by kubectl.
const EnvCommand = "FAIRLEAD_COMMAND"

// Exit codes of all programs.
const (
	ExitFailed = 1 // the operation failed, a check found a difference, doctor a ✗
	ExitUsage  = 2 // the command line is wrong; nothing was done
)

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

// Main runs a program with this process's arguments until it ends, or SIGINT or
// SIGTERM ends it, and exits.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Program makes a command a program's root, whose errors Report tells. Setting one of cobra's
// templates would make the program larger by a fifth (Makefile, TAGS).
func Program(root *cobra.Command, version string) *cobra.Command {
	root.Version, root.SilenceErrors, root.SilenceUsage = version, true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return hint.UsageError{Err: err} })
	return root
}

// hinter is an error that knows the next step.
type hinter interface{ Hint() string }

// Report writes one line with what failed and one with what to do.
func Report(w io.Writer, cmd *cobra.Command, err error) {
	shell := Shell()
	_, _ = fmt.Fprintf(w, "%s: %s\n", cmd.Root().Name(), shell.In(view.Printable(err.Error())))
	step := ""
	if h := hinter(nil); errors.As(err, &h) {
		step = h.Hint()
	}
	if errors.As(err, new(hint.UsageError)) {
		step = "`" + cmd.CommandPath() + " --help` shows the command"
	}
	if step != "" {
		_, _ = fmt.Fprintln(w, shell.In("  next: "+view.Printable(step)))
	}
}

// Commit is the revision this program was built from, "" when not known.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
