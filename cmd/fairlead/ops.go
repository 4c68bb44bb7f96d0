package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/question"
)

func gcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what belongs to network namespaces that are gone", Args: usage.Args(cobra.NoArgs),
		Long: `Remove what belongs to network namespaces that are gone. By itself the agent
removes what a DEL left unfinished; an attachment whose namespace is gone waits
for the runtime's DEL, or for this command. One whose namespace lives is never
touched. --dry-run lists what would go, by the same choice: attachments with
their ports, addresses, host ports and plugins, and ports and links of none.`,
	}
	dry := cmd.Flags().Bool("dry-run", false, "list what would be removed, and remove nothing")
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		collect := agentOf(cmd).GC
		if *dry {
			collect = agentOf(cmd).GCPreview
		}
		result, err := collect(ctx)
		if err != nil {
			return err
		}
		err = out.print(cmd.OutOrStdout(), result, func(w io.Writer, _ view.Options) error { return view.GC(w, result) })
		if err == nil && len(result.Failed) > 0 {
			return silentError{exitFailed}
		}
		return err
	}
	return cmd
}

// queries are the plain questions to the agent that are subcommands of one; of
// the program: "".
func queries(under string) []*cobra.Command {
	var out []*cobra.Command
	for _, q := range view.Queries() {
		if q.Under == under && !question.Has(q.Under, q.Use) {
			out = append(out, queryCommand(q))
		}
	}
	return out
}

func queryCommand(q view.Query) *cobra.Command {
	cmd := &cobra.Command{Use: q.Use, Short: q.Short, Long: q.Long, Args: usage.Args(cobra.NoArgs)}
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		raw, err := agentOf(cmd).Raw(ctx, q.Path)
		if err != nil {
			return err
		}
		answer, err := q.Read(raw)
		if err != nil {
			return fmt.Errorf("read the agent's answer to %s: %w", q.Path, err)
		}
		err = out.print(cmd.OutOrStdout(), answer.Value, answer.Text)
		if err == nil && answer.Failed {
			return silentError{exitFailed}
		}
		return err
	}
	return cmd
}

// versions is what `version -o json` prints.
type versions struct {
	Client string `json:"client"`
	Commit string `json:"commit,omitempty"`
	Go     string `json:"go"`
	Agent  string `json:"agent,omitempty"` // absent: no agent answers
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "The version of this program and of the agent", Args: usage.Args(cobra.NoArgs)}
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versions{Client: version, Commit: usage.Commit(), Go: runtime.Version()}
		ctx, cancel := within(cmd)
		defer cancel()
		if s, err := agentOf(cmd).Status(ctx); err == nil { // no agent is no failure here
			v.Agent = s.Version
		}
		return out.print(cmd.OutOrStdout(), v, v.text)
	}
	return cmd
}

func (v versions) text(w io.Writer, _ view.Options) error {
	name := v.Agent
	if name == "" {
		name = "not running"
	}
	_, err := fmt.Fprintf(w, "fairlead %s\nagent    %s\n", v.Client, name)
	return err
}
