package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/driver/builtin/sriov"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

func importSRIOVCommand() *cobra.Command {
	var plan, apply, rollback bool
	var dir, marks string
	cmd := &cobra.Command{
		Use:   "sriov",
		Short: "Adopt the virtual functions that the program sriov has given to running pods, or leave them to it",
		Long: `Adopt the virtual functions that the program sriov has given to running pods, or leave them to it.

After --apply a DEL by the agent makes each of them what it was. --plan, which is the
default, says what there is and changes nothing: exit code 1 when something is in the
way. --apply may be killed at any instant and run again; --rollback undoes it.`,
		Args: usage.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.BoolVar(&plan, "plan", false, "look and change nothing (default)")
	f.BoolVar(&apply, "apply", false, "adopt them")
	f.BoolVar(&rollback, "rollback", false, "leave them to the program")
	f.StringVar(&dir, "sriov-dir", sriov.FormerDir, "where the program keeps what it did")
	f.StringVar(&marks, "vf-dir", sriov.Dir, "where the agent keeps whose each virtual function is")
	cmd.MarkFlagsMutuallyExclusive("plan", "apply", "rollback")
	out := outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		i := sriov.NewImport(dir, marks)
		do := i.Plan
		switch {
		case apply:
			do = i.Apply
		case rollback:
			do = i.Rollback
		}
		all, err := do()
		if err != nil {
			return err
		}
		err = out.print(cmd.OutOrStdout(), all, func(w io.Writer, _ view.Options) error { return formerText(w, all) })
		for _, v := range all {
			if err == nil && v.InTheWay() {
				err = silentError{exitFailed}
			}
		}
		return err
	}
	return cmd
}

func formerText(w io.Writer, all []sriov.Former) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "DEVICE\tCONTAINER\tINTERFACE\tSTATE\tFILE\tWHY")
	for _, f := range all {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Device, f.Container, f.Interface, f.State, f.File, f.Why)
	}
	return t.Flush()
}
