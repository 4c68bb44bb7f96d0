package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/client/view"
	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/confexplain"
	"github.com/fairlead/fairlead/internal/doctor"
	"github.com/fairlead/fairlead/internal/hostruntime"
	"github.com/fairlead/fairlead/internal/local"
)

// safePath is the PATH of the programs that doctor and support-bundle start:
// the caller's own must not decide what root runs.
const safePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// examineFlags are the agent's flags, for commands that examine a machine.
func examineFlags(cmd *cobra.Command) *doctor.Config {
	c := &doctor.Config{}
	f := cmd.Flags()
	f.StringVar(&c.StateDir, "state-dir", nodeagent.DefaultStateDir, "the agent's state")
	f.StringVar(&c.Objects, "objects", "", "folder of the standalone objects")
	f.StringVar(&c.OVSDB, "ovsdb", nodeagent.DefaultOVSDB, "Open vSwitch's database")
	f.StringVar(&c.Bridge, "bridge", nodeagent.DefaultBridge, "our bridge")
	f.StringVar(&c.ConfDir, "conf-dir", hostruntime.DefaultConfDir, "CNI configurations")
	f.StringSliceVar(&c.BinDirs, "cni-bin-dir", []string{hostruntime.DefaultBinDir}, "CNI plugins; repeatable")
	f.StringVar(&c.Iface, "iface", "", "the node's interface (default: that of the default route)")
	f.IntVar(&c.MTU, "mtu", 0, "bytes a pod gets (default: --iface's less 100)")
	return c
}

// examined completes the flags: what was not given is as the running agent has it.
func examined(ctx context.Context, cmd *cobra.Command, c *doctor.Config) doctor.Config {
	client := agentOf(cmd)
	c.Agent, c.Socket, c.Run, c.LoadObjects = client, client.Socket(), runProgram, loadObjects
	if !cmd.Flags().Changed("conf-dir") && !cmd.Flags().Changed("cni-bin-dir") {
		c.Runtimes, c.Sockets = hostruntime.Usual(), hostruntime.Sockets()
	}
	s, err := client.Status(ctx)
	if err != nil {
		return *c // the check of the agent tells
	}
	has := s.Settings
	for _, f := range []struct {
		flag   string
		target *string
		value  string
	}{
		{"state-dir", &c.StateDir, has.StateDir},
		{"objects", &c.Objects, has.Objects},
		{"ovsdb", &c.OVSDB, has.OVSDB},
		{"bridge", &c.Bridge, has.Bridge},
		{"conf-dir", &c.ConfDir, has.ConfDir},
		{"iface", &c.Iface, has.Iface},
	} {
		if !cmd.Flags().Changed(f.flag) {
			*f.target = cmp.Or(f.value, *f.target)
		}
	}
	if !cmd.Flags().Changed("cni-bin-dir") && len(has.CNIBinDirs) > 0 {
		c.BinDirs = has.CNIBinDirs
	}
	if !cmd.Flags().Changed("mtu") {
		c.MTU = has.MTU
	}
	return *c
}

// loadObjects reads a folder of objects as the agent would.
func loadObjects(_ context.Context, dir string) (problems []agent.Problem, types []string, err error) {
	src, err := local.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	for _, p := range src.Problems() {
		problems = append(problems, agent.Problem{File: p.File, Line: p.Line, Reason: p.Reason})
	}
	for _, nad := range src.NADs() {
		chain, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
		if err != nil {
			continue // a NAD without a config, or one that is among the problems
		}
		for _, p := range chain.Plugins {
			types = append(append(types, p.Type), confexplain.Named(p.Raw)...)
		}
	}
	return problems, types, nil
}

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine this machine: kernel, Open vSwitch, CNI directories, node; exit code 1 on any ✗",
		Long: `Examine this machine, with or without an agent. Nothing is changed: probes
happen in a network namespace that goes with them. Flags that are not given are
as the running agent has them.

✓ works   ! works, with less   ✗ does not work; the next command stands below`,
		Args: usage.Args(cobra.NoArgs),
	}
	flags, out := examineFlags(cmd), outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		report, err := doctor.Run(ctx, examined(ctx, cmd, flags))
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
	flags := examineFlags(cmd)
	file := cmd.Flags().StringP("output", "o", "", "file to write (default: fairlead-support-<time>.tar.gz)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := within(cmd)
		defer cancel()
		now := time.Now()
		name := cmp.Or(*file, "fairlead-support-"+now.UTC().Format("20060102-150405")+".tar.gz")
		cfg := examined(ctx, cmd, flags)
		err := writeBundle(ctx, name, doctor.BundleConfig{
			Config: cfg, Raw: agentOf(cmd).Raw,
			Version: strings.TrimSpace(version + " " + commit()), Now: now, Secrets: secretEnv(os.Environ()),
		})
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

// writeBundle leaves no half-written file behind.
func writeBundle(ctx context.Context, name string, cfg doctor.BundleConfig) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usage.Hint(fmt.Errorf("%s exists already", name), "name another file with -o")
	}
	if err != nil {
		return err
	}
	err = errors.Join(doctor.Bundle(ctx, cfg, f), f.Close())
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// secretNames are environment variables whose value must not get out.
var secretNames = regexp.MustCompile(`(?i)pass|secret|token|key|credential|auth`)

func secretEnv(environ []string) (values []string) {
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); secretNames.MatchString(k) && v != "" {
			values = append(values, v)
		}
	}
	return values
}

// runProgram is the doctor's Runner.
func runProgram(ctx context.Context, c doctor.Command) ([]byte, error) {
	path, err := lookPath(c.Argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, c.Argv[1:]...)
	cmd.Env = append([]string{"PATH=" + safePath, "LC_ALL=C"}, c.Env...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return out, fmt.Errorf("%s: %w %s", c.Argv[0], err, line)
	}
	return out, nil
}

// lookPath finds a program in safePath.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range strings.Split(safePath, ":") {
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o111 != 0 && !info.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: %w", name, fs.ErrNotExist)
}
