package fairlead_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPartsGoOn: `make test` runs each of its parts, whatever fails, and lists
// the failures at the end.
func TestPartsGoOn(t *testing.T) {
	parts := func(args ...string) (string, error) {
		out, err := exec.Command("scripts/parts", args...).CombinedOutput()
		return string(out), err
	}
	out, err := parts("one", "echo '--- FAIL: TestX (0.1s)'; exit 3", "two", "echo second; kill -9 $$", "three", "echo third")
	require.Error(t, err)
	_, summary, found := strings.Cut(out, "third\n")
	require.True(t, found, "%s", out)
	require.Equal(t, "\nfailed: one\n  --- FAIL: TestX (0.1s)\nfailed: two\n", summary)

	// With what each failed test said first: a log may be cut before its end.
	out, err = parts("one", "echo '--- FAIL: TestX (0.1s)'; echo '    x_test.go:7: wrong'; seq -f '        a log, %g' 1000; echo FAIL; echo '    no'; exit 1")
	require.Error(t, err)
	_, summary, found = strings.Cut(out, "\nfailed: one\n")
	require.True(t, found, "%s", out)
	require.True(t, strings.HasPrefix(summary, "  --- FAIL: TestX (0.1s)\nwhy: --- FAIL: TestX (0.1s)\n    x_test.go:7: wrong\n        a log, 1\n"), summary)
	require.Less(t, strings.Count(summary, "\n"), 20)
	require.NotContains(t, summary, "    no")

	out, err = parts("one", "echo first", "two", "echo second")
	require.NoError(t, err)
	require.Equal(t, "first\nsecond\n", out)

	_, err = parts("one")
	require.Error(t, err)
}

// TestPartsSayHowFarTheyAre: a part that is long, and silent, is told of.
func TestPartsSayHowFarTheyAre(t *testing.T) {
	cmd := exec.Command("scripts/parts", "quiet", "echo 'ok  	some/package	0.1s'; "+
		// It ends when it was told of.
		"until grep -q ^progress: \"$SEEN\"; do sleep 0.05; done")
	seen := t.TempDir() + "/seen"
	cmd.Env = append(cmd.Environ(), "FAIRLEAD_PROGRESS=0.1", "SEEN="+seen)
	out, err := exec.Command("touch", seen).CombinedOutput()
	require.NoError(t, err, "%s", out)
	tee := exec.Command("tee", seen)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	tee.Stdin = pipe
	require.NoError(t, cmd.Start())
	out, err = tee.Output()
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Contains(t, string(out), "progress: quiet, 0 min: 1 packages ok, 0 failures, running: ")
}

// TestJobsAreSetUp: each job of scripts/setup that a target of the Makefile asks for
// has a rule, and the script knows it.
func TestJobsAreSetUp(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	_, rule, ok := strings.Cut(string(text), "\nsetup-run ")
	require.True(t, ok)
	rule, _, _ = strings.Cut("setup-run "+rule, ":")
	asked := regexp.MustCompile(`\bsetup-([a-z]+)`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(asked), 10)
	for _, job := range asked {
		require.Contains(t, strings.Fields(rule), job[0])
		out, err := exec.CommandContext(t.Context(), "grep", "-E", "^\t"+job[1]+"\\)", "scripts/setup").CombinedOutput()
		require.NoError(t, err, "scripts/setup knows no %s: %s", job[1], out)
	}
}

// TestEachTestRuns: `make test` runs each package once, with the race detector or without it, and of
// those with it leaves no test out. What test/soak.txt leaves to `make soak` is a test of one name.
func TestEachTestRuns(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	words := func(name string, args ...string) []string {
		out, err := exec.CommandContext(t.Context(), name, args...).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	variable := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + ` *:?\??= (.+)$`).FindSubmatch(text)
		require.NotNil(t, m, name)
		return strings.ReplaceAll(string(m[1]), "$$", "$")
	}
	core := regexp.MustCompile(`^\$\(addprefix (\S+?),(.+)\)$`).FindStringSubmatch(variable("RACE_CORE"))
	require.NotNil(t, core)
	var patterns []string
	for _, p := range strings.Fields(core[2]) {
		patterns = append(patterns, core[1]+p)
	}
	raced := words("go", append([]string{"list"}, patterns...)...)
	require.Contains(t, raced, module+"/internal/agent/engine")
	require.Contains(t, string(text), `race '$(MAKE) race RACE_PACKAGES="$(RACE_CORE)"'`)
	require.ElementsMatch(t, words("go", "list", "./..."), append(words("make", "-s", "unraced"), raced...))

	files := words("go", append([]string{"list", "-f", `{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$d}}/{{.}} {{end}}`}, raced...)...)
	require.Greater(t, len(files), len(raced))
	list, err := os.ReadFile("test/soak.txt")
	require.NoError(t, err)
	soak := regexp.MustCompile(`(?m)^(Test\S+) +\S`).FindAllSubmatch(list, -1)
	require.Greater(t, len(soak), 20)
	var names []string
	for _, s := range soak {
		names = append(names, string(s[1]))
		require.Len(t, words("grep", "-rlE", "--include=*_test.go", `^func `+string(s[1])+`\(t \*testing\.T\)`, "api", "cmd", "deploy", "internal", "test"), 1, "%s is in test/soak.txt", s[1])
	}
	reads := regexp.MustCompile(`^\^\(\$\(shell (.+)\)\)\$$`).FindStringSubmatch(variable("TEST_SKIP"))
	require.NotNil(t, reads)
	require.Equal(t, []string{strings.Join(names, "|")}, words("bash", "-c", reads[1]))
	left := regexp.MustCompile(variable("RACE_SKIP") + "|^(" + strings.Join(names, "|") + ")$")
	for _, name := range files {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(file, -1) {
			require.False(t, left.Match(f[1]), "%s of %s is left out", f[1], name)
		}
	}
}

// TestLibrariesAreSharedByModules: what the modules of tests and of the benchmark have in common with the
// main one they have in the same versions, so that it is compiled once where nothing is cached.
func TestLibrariesAreSharedByModules(t *testing.T) {
	requires := func(dir string) map[string]string {
		cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
		cmd.Dir = dir
		out, err := cmd.Output()
		require.NoError(t, err)
		var mod struct {
			Require []struct{ Path, Version string }
		}
		require.NoError(t, json.Unmarshal(out, &mod))
		all := map[string]string{}
		for _, r := range mod.Require {
			all[r.Path] = r.Version
		}
		return all
	}
	ours := requires(".")
	for _, dir := range []string{"bench", "bench/peers/multus", "test/chart", "test/cri", "test/kube/containerd"} {
		shared := 0
		for path, version := range requires(dir) {
			is, there := ours[path]
			if !there || strings.HasPrefix(path, "github.com/onsi/") { // CRI's suite has a newer one
				continue
			}
			shared++
			require.Equal(t, is, version, "%s in %s", path, dir)
		}
		require.Greater(t, shared, 10, dir)
	}
}
