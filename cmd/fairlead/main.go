// Command fairlead is the node agent and the operator's tool in one binary.
// This package parses flags and the environment, builds the parts and runs
// them; nothing else reads either.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeloop"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	nodeclient "github.com/fairlead/fairlead/internal/node/client"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// Exit codes, as docs/cli.md and `fairlead --help` tell them.
const (
	exitFailed   = usage.ExitFailed
	exitUsage    = usage.ExitUsage
	exitNotFound = 3 // the pod, address or container named is not known
	exitNoAgent  = 4 // no agent answers on the socket, or no API server
)

// defaultTimeout bounds a command; the agent gives an ADD 50 s itself.
const defaultTimeout = time.Minute

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

func main() { usage.Main(run) }

// commands are the constructors of all subcommands but those that are questions.
func commands() []func() *cobra.Command {
	return []func() *cobra.Command{
		getCommand, describeCommand,
		func() *cobra.Command { return nodeagent.Command(agent.Build{Version: version, Commit: usage.Commit()}) },
		attachCommand, detachCommand, checkCommand,
		installCommand, uninstallCommand, installCNICommand, importCommand, confCommand, leaseCommand,
		criCommand, func() *cobra.Command { return nodeloop.Command(version) }, logsCommand, execCommand, upCommand, downCommand, gcCommand, doctorCommand, bundleCommand, versionCommand,
	}
}

// run executes one command line and gives its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if !errors.As(err, new(silentError)) {
		usage.Report(stderr, cmd, err)
	}
	return exitCode(err)
}

func rootCommand() *cobra.Command {
	root := usage.Program(&cobra.Command{
		Use:   "fairlead",
		Short: "Networks for pods: the node agent and the operator's commands",
		Long: `Networks for pods: the node agent and the operator's commands.

Exit codes: 0 done; 1 failed, or a check found something; 2 wrong command line;
3 the thing named is not known; 4 no agent, or no API server, answers.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}, version)
	root.PersistentFlags().String("socket", cni.DefaultSocket, "the agent's unix socket")
	root.PersistentFlags().Duration("timeout", defaultTimeout, "how long a command may take")
	for _, command := range commands() {
		root.AddCommand(command())
	}
	root.AddCommand(group("ovn", "Run OVN's own programs on this cluster's databases", questions("ovn")...))
	root.AddCommand(append(queries(""), questions("")...)...)
	return root
}

// silentError carries an exit code for output that said everything already.
type silentError struct{ code int }

func (e silentError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// one wants exactly one argument, and says which.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s needs one %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

// group is a command that only has subcommands, plain questions among them.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	subs = append(subs, queries(use)...)
	cmd := &cobra.Command{Use: use, Short: short, Args: usage.Args(cobra.NoArgs)}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		names := make([]string, len(subs))
		for i, s := range subs {
			names[i] = s.Name()
		}
		return hint.Usagef("%s needs one of: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	cmd.AddCommand(subs...)
	return cmd
}

func exitCode(err error) int {
	silent, noAgent := silentError{}, (*client.NoAgentError)(nil)
	switch {
	case errors.As(err, &silent):
		return silent.code
	case errors.As(err, new(hint.UsageError)):
		return exitUsage
	case errors.As(err, &noAgent), errors.As(err, new(*query.UnreachableError)), errors.As(err, new(*nodeclient.AbsentError)):
		return exitNoAgent
	case errors.Is(err, core.ErrNotFound):
		return exitNotFound
	}
	return exitFailed
}

// within bounds a command's context by --timeout.
func within(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	d, err := cmd.Flags().GetDuration("timeout")
	if err != nil || d <= 0 {
		d = defaultTimeout
	}
	return context.WithTimeout(cmd.Context(), d)
}

// agentOf is the client of --socket.
func agentOf(cmd *cobra.Command) *client.Client {
	socket, err := cmd.Flags().GetString("socket")
	if err != nil || socket == "" {
		socket = cni.DefaultSocket
	}
	return client.New(socket)
}
