package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/controller/central"
	"github.com/fairlead/fairlead/internal/controller/loop"
)

// runIt gives exit code, standard output and standard error.
func runIt(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err)
	return code, out.String(), err.String()
}

// TestHelp: all flags have a line, and no other program is spoken of.
func TestHelp(t *testing.T) {
	code, stdout, stderr := runIt(t.Context(), "--help")
	require.Zero(t, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "\n  fairlead-controller [flags]\n")
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags(f, &loop.Config{})
	f.VisitAll(func(one *pflag.Flag) { require.Contains(t, stdout, "--"+one.Name+" ") })

	code, stdout, _ = runIt(t.Context(), "central", "--help")
	require.Zero(t, code)
	f = pflag.NewFlagSet("", pflag.ContinueOnError)
	centralFlags(f, &central.Config{})
	f.VisitAll(func(one *pflag.Flag) { require.Contains(t, stdout, "--"+one.Name+" ") })

	code, stdout, _ = runIt(t.Context(), "--version")
	require.Zero(t, code)
	require.Equal(t, "fairlead-controller version dev\n", stdout)
}

// TestWrongCommandLine: nothing is done, and two lines say what is wrong and
// where to look.
func TestWrongCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"--nonsense":                          "unknown flag: --nonsense",
		"--workers many":                      `invalid argument "many" for "--workers"`,
		"more":                                `unknown command "more"`,
		"":                                    "--nb is empty",
		"--nb unix:/n --workers 0":            "--workers is at least 1",
		"--nb unix:/n --lease-duration 2.5s":  "--lease-duration",
		"--nb unix:/n --join-cidr 10.0.0.0/x": "--join-cidr",
		"--nb unix:/n --kubeconfig /nowhere":  "--kubeconfig: kubeconfig: stat /nowhere",
		"--nb unix:/n":                        "--kubeconfig: ",
		"--nb unix:/n --certificate-life 1s":  "--certificate-life",
		"central":                             "--members",
		"central --members x":                 `"x" is no address`,
		"central --members 10.0.0.1,10.0.0.1 --address 10.0.0.1":    "twice",
		"central --members 10.0.0.1 --address 10.0.0.2":             `"10.0.0.2" is none of --members`,
		"central --members 10.0.0.1 --address 10.0.0.1 --dir a":     "--dir is an absolute path",
		"central --members 10.0.0.1 --address 10.0.0.1 --run-dir a": "--run-dir is an absolute path",
	} {
		code, stdout, stderr := runIt(t.Context(), strings.Fields(args)...)
		require.Equal(t, usage.ExitUsage, code, "%s: %s", args, stderr)
		require.Empty(t, stdout)
		require.Regexp(t, `^fairlead-controller: .*\n  next: .fairlead-controller( central)? --help. shows the command\n$`, stderr)
		require.Contains(t, stderr, want)
	}
}

// TestEnds: a controller that reaches neither database nor API server goes on, and
// ends well when it is told to.
func TestEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c,
		contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],
		clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	code, _, stderr := runIt(ctx, "--kubeconfig", file, "--nb", "unix:/nowhere", "--http", "127.0.0.1:0")
	require.Zero(t, code, stderr)
}
