package fairlead_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContributingNamesWhatIsThere: every file and folder by which CONTRIBUTING
// walks through a change exists.
func TestContributingNamesWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	names := regexp.MustCompile("`((?:api|cmd|deploy|docs|internal|test)/[^`<]+)`").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, names)
	for _, n := range names {
		found, err := filepath.Glob(n[1])
		require.NoError(t, err)
		require.NotEmptyf(t, found, "%s is named in CONTRIBUTING.md", n[1])
	}
}

// TestAQueryIsFourFiles: a question to the agent is its type and path, its
// handler, its row of queries with the text, and its row of docs/cli.md.
// CONTRIBUTING walks through this one.
func TestAQueryIsFourFiles(t *testing.T) {
	src, err := load(".")
	require.NoError(t, err)
	var files []string
	for _, group := range src {
		for _, f := range group {
			if !f.test && (bytes.Contains(f.text, []byte("PathLeaks")) || bytes.Contains(f.text, []byte("LeakList"))) {
				files = append(files, f.name)
			}
		}
	}
	require.ElementsMatch(t, []string{"api/agent/leaks.go", "internal/agent/server/operator.go", "internal/ops/client/view/query.go"}, files)
	contributing, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	for _, f := range append(files, "docs/cli.md") {
		require.Contains(t, string(contributing), "`"+f+"`")
	}
}
