package fairlead_test

import (
	"bytes"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bar of STYLE.md for the tree as a whole: it falls with many small steps,
// none of which breaks a rule by itself. The share of comments is only told: a
// bound on it would be met with filler.
// Lengths are counted as the linter funlen counts them: the lines between the
// braces.
const (
	maxMedian = 10 // lines of a function's body
	maxP95    = 50 // lines of a function's body
)

// measure collects function lengths and counts comment and code lines of the
// product's files.
func measure(t tree) (lengths []int, comments, code int) {
	for folder, files := range t {
		for _, f := range files {
			if f.test || support(folder) || ast.IsGenerated(f.file) {
				continue
			}
			for _, whole := range functions(f) {
				lengths = append(lengths, max(whole-2, 1))
			}
			c := commentLines(f)
			comments += c
			code += filled(f) - c
		}
	}
	slices.Sort(lengths)
	return lengths, comments, code
}

// commentLines counts lines that hold nothing but a comment.
func commentLines(f source) int {
	n := 0
	for _, group := range f.file.Comments {
		for _, c := range group.List {
			from, to := f.fset.Position(c.Pos()), f.fset.Position(c.End())
			if f.alone(from.Offset) {
				n += to.Line - from.Line + 1
			}
		}
	}
	return n
}

// alone tells that only white space stands before an offset in its line.
func (s source) alone(offset int) bool {
	line := s.text[bytes.LastIndexByte(s.text[:offset], '\n')+1 : offset]
	return len(bytes.TrimSpace(line)) == 0
}

// filled counts lines that are not blank.
func filled(f source) int {
	n := 0
	for line := range bytes.Lines(f.text) {
		if len(bytes.TrimSpace(line)) > 0 {
			n++
		}
	}
	return n
}

func TestBar(t *testing.T) {
	src, err := load(".")
	require.NoError(t, err)
	lengths, comments, code := measure(src)
	talk := float64(comments) / float64(code)
	median, p95 := lengths[len(lengths)/2], lengths[len(lengths)*95/100]
	t.Logf("%d functions: median %d lines, 95 of 100 within %d; %d comment lines on %d of code (%.0f %%)",
		len(lengths), median, p95, comments, code, 100*talk)
	require.LessOrEqual(t, median, maxMedian)
	require.LessOrEqual(t, p95, maxP95)
}

func TestBarMeasures(t *testing.T) {
	text := "// Package x is a fixture.\npackage x\n\n/* two\nlines */\nvar a = 1 // beside code\n\nfunc f() {\n\t// inside\n\ta++\n}\n"
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "x.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "x_test.go"), []byte("package x\n\n// not counted\nfunc g() {}\n"), 0o600))
	src, err := load(root)
	require.NoError(t, err)
	lengths, comments, code := measure(src)
	require.Equal(t, []int{2}, lengths)
	require.Equal(t, 4, comments)
	require.Equal(t, 5, code)
}
