package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
)

// PluginDir is the node's plugin folder: fairlead, multus and kube-ovn (all
// three our plugin) beside the upstream ones.
const PluginDir = "/opt/cni/bin"

// Answer is what a plugin gave back.
type Answer struct {
	ExitCode int
	Stdout   []byte
	Stderr   string

	n *Node
}

// CNI executes the plugin named by the configuration's type, as a runtime
// does. An empty r.Path means PluginDir. Safe in any goroutine.
func (n *Node) CNI(r cni.Request) Answer {
	plugin := struct {
		Type string `json:"type"`
	}{Type: "fairlead"}
	_ = json.Unmarshal(r.Config, &plugin) // a broken conf is for the plugin to refuse
	return n.CNIType(plugin.Type, r)
}

// CNIType is CNI with the plugin's name given.
func (n *Node) CNIType(name string, r cni.Request) Answer {
	if b := build(); b.err != nil {
		return Answer{ExitCode: -1, Stderr: b.err.Error(), n: n}
	}
	if r.Path == "" {
		r.Path = PluginDir
	}
	// The plugin's own deadline is 50 s and more; this one only ends a hang.
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := n.Cmd(ctx, PluginDir+"/"+name)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(r.Config), &stdout, &stderr
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+r.Command, "CNI_CONTAINERID="+r.ContainerID,
		"CNI_NETNS="+r.Netns, "CNI_IFNAME="+r.IfName, "CNI_ARGS="+r.Args, "CNI_PATH="+r.Path)
	err := cmd.Run()
	a := Answer{Stdout: stdout.Bytes(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode(), n: n}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		a.ExitCode, a.Stderr = -1, err.Error()
	}
	return a
}

// Err is nil after success, else the plugin's error. An exit status without an
// error object is an error of code 0.
func (a Answer) Err() *cni.Error {
	if a.ExitCode == 0 {
		return nil
	}
	e := &cni.Error{}
	if err := json.Unmarshal(a.Stdout, e); err != nil || e.Code == 0 {
		return &cni.Error{Msg: fmt.Sprintf("exit status %d without an error object", a.ExitCode),
			Details: string(a.Stdout) + a.Stderr}
	}
	return e
}

// Must fails the test unless the call succeeded.
func (a Answer) Must() Answer {
	a.n.t.Helper()
	if e := a.Err(); e != nil {
		require.FailNow(a.n.t, e.Msg, "code %d: %s", e.Code, e.Details)
	}
	return a
}

// MustCode fails the test unless the call failed with this code; it returns
// the error.
func (a Answer) MustCode(code uint) *cni.Error {
	a.n.t.Helper()
	e := a.Err()
	require.NotNil(a.n.t, e, "success, not code %d: %s", code, a.Stdout)
	require.Equal(a.n.t, code, e.Code, "%s: %s", e.Msg, e.Details)
	return e
}

// Decode reads the result into v.
func (a Answer) Decode(v any) {
	a.n.t.Helper()
	a.Must()
	require.NoError(a.n.t, json.Unmarshal(a.Stdout, v), "%s", a.Stdout)
}

// IPs lists the result's addresses, "10.0.0.2/24", for CNI 0.3.0 and later.
func (a Answer) IPs() []string {
	a.n.t.Helper()
	var r struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	}
	a.Decode(&r)
	var out []string
	for _, ip := range r.IPs {
		out = append(out, ip.Address)
	}
	return out
}

// Fairlead runs one of the operator's commands in the node and returns its
// output.
func (n *Node) Fairlead(args ...string) string {
	n.t.Helper()
	out, err := n.TryFairlead(args...)
	require.NoError(n.t, err)
	return out
}

// TryFairlead is Fairlead for commands that may fail.
func (n *Node) TryFairlead(args ...string) (string, error) {
	n.t.Helper()
	return n.Try(append([]string{programs(n.t).fairlead}, args...)...)
}

// CNITool runs upstream's cnitool in the node with configurations from
// confDir; env is added, e.g. "CNI_ARGS=...".
func (n *Node) CNITool(confDir string, env []string, args ...string) Answer {
	n.t.Helper()
	argv := append([]string{"env", "CNI_PATH=" + PluginDir, "NETCONFPATH=" + confDir}, env...)
	argv = append(append(argv, programs(n.t).cnitool), args...)
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	cmd := n.Cmd(ctx, argv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(n.t, err)
	}
	return Answer{ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.Bytes(), Stderr: stderr.String(), n: n}
}
