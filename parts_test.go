package fairlead_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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

// TestEachTestRuns: what `make race` leaves out of a package is run by what comes after it in
// .ci/run.
func TestEachTestRuns(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	skip := regexp.MustCompile(`(?m)^RACE_SKIP \?= (.+)$`).FindSubmatch(text)
	require.NotNil(t, skip)
	left := regexp.MustCompile(strings.ReplaceAll(string(skip[1]), "$$", "$"))
	ci, err := os.ReadFile(".ci/run")
	require.NoError(t, err)
	require.Contains(t, string(ci), `make test TEST_PACKAGES="$rest" TEST_PARTLY="$partly"`)
	packages := func(target string) []string {
		out, err := exec.CommandContext(t.Context(), "make", "-s", target).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	whole, partly := packages("unraced"), packages("partly")
	require.Contains(t, whole, module+"/test/e2e")
	for _, one := range append(slices.Clone(partly), module+"/internal/agent/engine") {
		require.NotContains(t, whole, one)
	}
	found := 0
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	require.NoError(t, filepath.WalkDir("internal", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, f := range name.FindAllStringSubmatch(string(text), -1) {
			if left.MatchString(f[1]) {
				found++
				require.Contains(t, slices.Concat(whole, partly), module+"/"+path.Dir(file), f[1])
			}
		}
		return err
	}))
	require.Greater(t, found, 5)
}
