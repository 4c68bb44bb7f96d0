package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ops/program"
	"github.com/fairlead/fairlead/internal/ops/question"
)

// examineFlags are the agent's flags, for commands that examine a machine. What was not
// given is as the running agent has it.
func examineFlags(cmd *cobra.Command) func(context.Context) doctor.Config {
	c, from, long := &doctor.Config{}, &originFlags{all: true}, cmd.Long
	f := cmd.Flags()
	f.StringVar(&c.StateDir, "state-dir", nodeagent.DefaultStateDir, "the agent's state")
	f.StringVar(&c.Objects, "objects", "", "folder of the standalone objects")
	f.StringVar(&c.OVSDB, "ovsdb", nodeagent.DefaultOVSDB, "Open vSwitch's database")
	f.StringVar(&c.Bridge, "bridge", nodeagent.DefaultBridge, "our bridge")
	f.BoolVar(&c.OVN, "ovn", false, "OVN carries the networks")
	f.StringVar(&c.NB, "nb", "", "OVN's northbound database (default: with --objects "+nodeagent.DefaultNB+", else the --nb of Deployment fairlead-controller)")
	f.StringVar(&c.ConfDir, "conf-dir", runtimes.DefaultConfDir, "CNI configurations")
	f.StringSliceVar(&c.BinDirs, "cni-bin-dir", []string{runtimes.DefaultBinDir}, "CNI plugins; repeatable")
	f.StringVar(&c.Iface, "iface", "", "the node's interface, as the agent's --iface (default: that of the default route)")
	f.IntVar(&c.MTU, "mtu", 0, "bytes a pod gets (default: --iface's less what a tunnel takes)")
	addFlags(cmd, question.HealthFlags())
	from.add(cmd)
	cmd.Long = long
	return func(ctx context.Context) doctor.Config {
		client := agentOf(cmd)
		c.Agent, c.Socket, c.Run, c.LoadObjects = client, client.Socket(), program.Run, doctor.LoadObjects
		if !cmd.Flags().Changed("conf-dir") && !cmd.Flags().Changed("cni-bin-dir") {
			c.Runtimes, c.Sockets = runtimes.Usual(), runtimes.Sockets()
		}
		if s, err := client.Status(ctx); err == nil { // else the check of the agent tells
			c.Adopt(s.Settings, cmd.Flags().Changed)
		}
		o, err := from.open(cmd, nil)
		if err != nil {
			note(cmd, "no cluster is asked: "+err.Error())
		}
		question.Beside(c, o, func(name string) string { return cmd.Flag(name).Value.String() })
		return *c
	}
}

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine this machine: kernel, Open vSwitch, CNI directories, node; exit code 1 on any ✗",
		Long: `Examine this machine, with or without an agent. Nothing is changed: probes
happen in a network namespace that goes with them. Flags that are not given are
as the running agent has them. In a cluster with OVN its central part, certificates
and controllers are looked at too, as far as they are reached from here.

✓ works   ! works, with less   ✗ does not work; the next command stands below`,
		Args: usage.Args(cobra.NoArgs),
	}
	out, examined := outputFlag(cmd, asTable, asJSON, asYAML), examineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		report, err := doctor.Run(ctx, examined(ctx))
		if err != nil {
			return err
		}
		err = out.print(cmd.OutOrStdout(), report, func(w io.Writer, _ view.Options) error { return report.Text(w) })
		if err == nil && !report.OK {
			return silentError{exitFailed}
		}
		return err
	}
	return cmd
}

func bundleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "support-bundle", Short: "Pack what a report of a defect needs, without secrets", Args: usage.Args(cobra.NoArgs),
		Long: `Pack what a report of a defect needs: the agent's views, metrics and log, the
findings of doctor, our bridge, links, routes and packet filter tables. No
content of configurations, annotations or environments; what looks like a secret
is taken out. Names and addresses of pods stay: look before you give it away.`,
	}
	examined, file := examineFlags(cmd), cmd.Flags().StringP("output", "o", "", "file to write (default: fairlead-support-<time>.tar.gz)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		now := time.Now()
		name := cmp.Or(*file, "fairlead-support-"+now.UTC().Format("20060102-150405")+".tar.gz")
		cfg := examined(ctx)
		err := doctor.BundleFile(ctx, name, doctor.BundleConfig{
			Config: cfg, Raw: agentOf(cmd).Raw,
			Version: strings.TrimSpace(version + " " + usage.Commit()), Now: now, Secrets: doctor.SecretEnv(os.Environ()),
		})
		if errors.Is(err, fs.ErrExist) {
			return hint.On(fmt.Errorf("%s exists already", name), "name another file with -o")
		}
		if err != nil {
			return err
		}
		if again := doctor.Elsewhere(ctx, cfg, cmd.Name()); again != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "links, routes and packet filters in it are of this network namespace, which is not the agent's\n  next: %s\n", again)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", name)
		return err
	}
	return cmd
}
