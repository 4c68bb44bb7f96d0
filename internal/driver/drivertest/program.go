package drivertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/testbed"
)

// programs are built one after the other: packages are tested side by side.
var programs sync.Mutex

// Programs gives a directory with these of upstream's plugins (group/name, as
// main/macvlan), as pinned in tools/go.mod; what `make` has not built is built,
// and is there as a whole or not at all: other packages' tests look too.
func Programs(t testing.TB, names ...string) string {
	t.Helper()
	root, err := testbed.Repository()
	require.NoError(t, err)
	dir := filepath.Join(root, ".cache", "bin")
	programs.Lock()
	defer programs.Unlock()
	for _, name := range names {
		file := filepath.Join(dir, filepath.Base(name))
		if _, err := os.Stat(file); err == nil {
			continue
		}
		unfinished := fmt.Sprintf("%s.%d", file, os.Getpid())
		cmd := exec.Command("go", "-C", filepath.Join(root, "tools"), "build", "-ldflags", "-s -w", "-o", unfinished,
			"github.com/containernetworking/plugins/plugins/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, os.Rename(unfinished, file))
	}
	return dir
}

// Leases are the files of host-local's addresses below dir, with what they say.
func Leases(t testing.TB, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, name := range names {
		if base := filepath.Base(name); base != "lock" && !strings.HasPrefix(base, "last") {
			raw, err := os.ReadFile(name)
			require.NoError(t, err)
			out[base] = string(raw)
		}
	}
	return out
}

// Program is upstream's program of a plugin, which is called as driver.Plugin is.
type Program struct {
	Dir  string        // where it and its IPAM plugin are
	Type string        // its name
	Host *netns.Handle // where it runs, nil for the test's own namespace
}

// Run calls it and gives its standard output, or the *core.Error that it prints.
func (p Program) Run(op core.Op, c driver.PluginCall) (out json.RawMessage, err error) {
	err = p.Host.Do(func() (err error) {
		cmd := exec.Command(filepath.Join(p.Dir, p.Type))
		cmd.Dir = "/"
		cmd.Stdin = strings.NewReader(string(c.Conf))
		cmd.Env = []string{
			"CNI_COMMAND=" + string(op), "CNI_CONTAINERID=" + c.Key.Container, "CNI_NETNS=" + c.Netns.Path,
			"CNI_IFNAME=" + c.Key.IfName, "CNI_ARGS=" + c.Args, "CNI_PATH=" + p.Dir,
		}
		out, err = cmd.Output()
		return err
	})
	if err == nil {
		return out, nil
	}
	said := core.Error{}
	if json.Unmarshal(out, &said) != nil || said.Code == 0 {
		return nil, fmt.Errorf("%s %s: %w: %s", p.Type, op, err, out)
	}
	return nil, &said
}

// RequireCode requires err to have the code that the program answered with or, where that is
// the one for everything (999), may have one that says more: of the environment
// or of the configuration.
func RequireCode(t testing.TB, program, err error) {
	t.Helper()
	codes := []uint{core.CodeOf(program)}
	if codes[0] == inproc.CodeOther {
		codes = append(codes, core.CodeEnv, core.CodeConfig)
	}
	require.Contains(t, codes, core.CodeOf(err), "%v, %v", program, err)
}
