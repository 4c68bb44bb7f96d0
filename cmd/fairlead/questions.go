package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/ops/leasing"
	"github.com/fairlead/fairlead/internal/ops/program"
	"github.com/fairlead/fairlead/internal/ops/question"
)

// questions are the commands about a cluster that are subcommands of one; of the
// program: "".
func questions(under string) []*cobra.Command {
	var out []*cobra.Command
	for _, q := range question.All() {
		if q.Under == under {
			out = append(out, questionCommand(q))
		}
	}
	return out
}

func leaseCommand() *cobra.Command {
	var subs []*cobra.Command
	for _, q := range leasing.Questions() {
		subs = append(subs, questionCommand(q))
	}
	return group("lease", "Declared addresses and MACs: who has which", subs...)
}

func questionCommand(q question.Question) *cobra.Command {
	takes := func(cmd *cobra.Command, args []string) error { return q.Takes(cmd.CommandPath(), len(args)) }
	cmd := &cobra.Command{Use: strings.Join(append([]string{q.Use}, q.Args...), " "), Short: q.Short, Args: usage.Args(takes)}
	out, from := &format{value: asTable}, &originFlags{all: true}
	if !q.Hands {
		out = outputFlag(cmd, asTable, asJSON, asYAML)
	}
	if q.Under == "" {
		cmd.AddCommand(questions(q.Use)...)
	}
	from.add(cmd)
	cmd.Long += q.Long
	cmd.Flags().SetInterspersed(!q.Hands)
	addFlags(cmd, q.Flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := from.open(cmd, nil)
		if err != nil {
			return err
		}
		given := question.Given(q.Flags, func(name string) string { return cmd.Flag(name).Value.String() })
		ctx, cancel := within(cmd)
		defer cancel()
		answer, err := q.Answer(ctx, question.Asked{
			Origin: o, Args: args, Flags: given, Run: program.Run, Note: func(text string) { note(cmd, text) }, In: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
			// As long as the program takes: it has a --timeout of its own.
			Hand: func(argv ...string) (int, error) {
				return program.Hand(cmd.Context(), program.Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}, argv...)
			},
		})
		if err != nil {
			return o.Explain(err)
		}
		if answer.Text != nil {
			err = out.print(cmd.OutOrStdout(), answer.Value, answer.Text)
		}
		if code := answer.ExitCode(exitFailed, exitNotFound); err == nil && code != 0 {
			return silentError{code}
		}
		return err
	}
	return cmd
}

// addFlags adds those that the command does not have.
func addFlags(cmd *cobra.Command, flags []question.Flag) {
	for _, f := range flags {
		switch {
		case cmd.Flag(f.Name) != nil:
		case f.Switch:
			cmd.Flags().BoolP(f.Name, f.Letter, false, f.Usage)
		default:
			cmd.Flags().StringP(f.Name, f.Letter, f.Default, f.Usage)
		}
	}
}
