package fairlead_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fixture is a file of a made-up tree and what the checker must say about it;
// want "" means that it must find nothing.
type fixture struct {
	name string
	text string
	want string
}

// imp writes a documented package that imports one path for nothing.
func imp(p string) string {
	return "// Package x is a fixture.\npackage x\n\nimport _ \"" + p + "\"\n"
}

// body repeats a statement n times.
func body(n int) string { return strings.Repeat("\t_ = 0\n", n) }

var fixtures = []fixture{
	{"internal/network/plan/a.go", imp(module + "/internal/network/resolve"), ""},
	{"internal/kernel/rtnl/a.go", imp(module + "/internal/kernel/netns"), ""},
	{"internal/driver/ovs/a.go", imp(module + "/internal/driver"), ""},
	{"cmd/fairlead/a.go", imp("github.com/spf13/cobra"), ""},
	{"internal/driver/exec/a.go", imp("os/exec"), ""},
	{"internal/kernel/netns/a.go", imp("unsafe"), ""},
	{"internal/ovs/testdata/a.go", imp("github.com/pkg/errors"), ""},
	{"internal/kernel/netns/netnstest/a.go", imp("testing"), ""},
	{"internal/testbed/a.go", imp("os/exec"), ""},
	{"internal/ovs/ovstest/a.go", imp(module + "/internal/kernel/netns"), ""},
	{"internal/network/ipam/a_test.go", imp(module + "/internal/testbed"), ""},
	{"other/go.mod", "module other\n", ""},
	{"other/a.go", imp("github.com/pkg/errors"), ""},

	{"internal/journal/up.go", imp(module + "/internal/agent/engine"), "internal/journal (layer 2) imports internal/agent/engine (layer 5)"},
	{"internal/journal/beside.go", imp(module + "/internal/ovs"), "internal/journal (layer 2) imports internal/ovs (layer 2)"},
	{"internal/driver/defroute/a.go", imp(module + "/internal/driver/ovs"), "internal/driver/defroute imports internal/driver/ovs: an implementation"},
	{"internal/unknown/a.go", imp(module + "/internal/core"), "internal/unknown has no row in the layers table"},
	{"internal/agent/engine/unknown.go", imp(module + "/internal/unknown"), "internal/unknown has no row in the layers table"},
	{"internal/kernel/rtnl/b.go", imp(module + "/internal/kernel/netns/netnstest"), "netnstest: test support, for tests only"},
	{"internal/agent/metrics/testbed.go", imp("github.com/stretchr/testify/require"), "a test library in the product"},
	{"internal/agent/server/flag.go", imp("flag"), "only commands read flags"},
	{"internal/agent/server/exec.go", imp("os/exec"), "the hot path starts no process"},
	{"internal/agent/server/unsafe.go", imp("unsafe"), "only system calls need it"},
	{"internal/agent/server/logrus.go", imp("github.com/sirupsen/logrus"), "log/slog is the one logger"},
	{"internal/agent/metrics/cmd.go", imp(module + "/cmd/fairlead"), "commands are not libraries"},
	{"internal/core/beyond.go", imp("golang.org/x/sys/unix"), "beyond what internal/core may"},
	{"cmd/fairlead-cni/a.go", imp(module + "/internal/core"), "beyond what cmd/fairlead-cni may"},
	{"api/agent/a.go", imp(module + "/internal/core"), "beyond what api may"},
	{"internal/controller/logical/a.go", imp(module + "/internal/ovn"), ""},
	{"internal/controller/logical/kernel.go", imp(module + "/internal/kernel/rtnl"), "internal/controller must not: a controller runs anywhere"},
	{"internal/agent/engine/a.go", imp(module + "/internal/driver"), ""},
	{"internal/agent/engine/driver.go", imp(module + "/internal/driver/exec"), "internal/agent/engine must not: it asks drivers"},
	{"internal/agent/engine/ports.go", imp(module + "/internal/gateway/hostport"), "internal/agent/engine must not: it asks drivers"},
	{"internal/agent/server/env.go", "// Package x is a fixture.\npackage x\n\nimport \"os\"\n\nvar home = os.Getenv(\"HOME\")\n", "os.Getenv: only commands"},
	{"internal/source/local/a.go", "package local\n", "internal/source/local: no package comment"},
	{"internal/network/ipam/fn.go", "// Package x is a fixture.\npackage x\n\nfunc f() {\n" + body(58) + "}\n", "f (line 4) has 60 lines"},
	{"internal/network/ipam/fine.go", "// Package x is a fixture.\npackage x\n\nfunc g() {\n" + body(57) + "}\n", ""},
	{"internal/network/cniconf/long.go", "// Package x is a fixture.\npackage x\n" + strings.Repeat("\n", 598), "600 lines; a file stays under 600"},
	{"internal/network/cniconf/short.go", "// Package x is a fixture.\npackage x\n" + strings.Repeat("\n", 597), ""},
}

// plant writes the fixtures and returns their root.
func plant(t *testing.T, files []fixture) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		name := filepath.Join(root, f.name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(f.text), 0o600))
	}
	return root
}

// TestCheckerFinds proves that each rule can fail, and that it fails only
// where it should.
func TestCheckerFinds(t *testing.T) {
	src, err := load(plant(t, fixtures))
	require.NoError(t, err)
	found := violations(src)
	expected := 0
	for _, f := range fixtures {
		if f.want == "" {
			require.NotContains(t, strings.Join(found, "\n"), f.name+":")
			continue
		}
		expected++
		require.Condition(t, func() bool { return mentions(found, f) }, "%s: want %q in\n%s", f.name, f.want, strings.Join(found, "\n"))
	}
	require.Len(t, found, expected, strings.Join(found, "\n"))
}

// mentions tells that one finding names the fixture's file or folder and says
// what is wanted.
func mentions(found []string, f fixture) bool {
	for _, line := range found {
		if strings.Contains(line, f.want) && strings.HasPrefix(line, filepath.Dir(f.name)) {
			return true
		}
	}
	return false
}

func TestCheckerBoundsPackages(t *testing.T) {
	var files []fixture
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		files = append(files, fixture{name: "internal/ovs/" + n + ".go",
			text: "// Package x is a fixture.\npackage x\n" + strings.Repeat("\n", 498)})
	}
	src, err := load(plant(t, files))
	require.NoError(t, err)
	require.Equal(t, []string{"internal/ovs: 2500 lines; a package stays under 2500"}, violations(src))

	src, err = load(plant(t, files[:4]))
	require.NoError(t, err)
	require.Empty(t, violations(src))
}
