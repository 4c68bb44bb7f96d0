package up_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/up"
)

// openLog opens a log of at most 100 bytes, with a file beside that is open on it.
func openLog(t *testing.T, path string) (*up.Log, *os.File) {
	t.Helper()
	beside, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	l, err := up.OpenLog(path, 100, beside)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, beside.Close())
	})
	return l, beside
}

// say writes a line of 10 bytes.
func say(t *testing.T, w *up.Log, mark string) {
	t.Helper()
	n, err := w.Write([]byte(strings.Repeat(mark, 9) + "\n"))
	require.NoError(t, err)
	require.Equal(t, 10, n)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// TestLogIsBounded: whatever is written, two files are there, of the size at
// most; whoever shares the file, as a process's standard error does, goes on with
// the new one.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, beside := openLog(t, path)
	for range 10 {
		say(t, l, "a")
	}
	require.NoFileExists(t, path+".1", "it is full and no more")
	say(t, l, "b")
	require.Equal(t, strings.Repeat("aaaaaaaaa\n", 10), read(t, path+".1"))
	_, err := beside.WriteString("panic\n")
	require.NoError(t, err)
	require.Equal(t, "bbbbbbbbb\npanic\n", read(t, path))
	for range 95 {
		say(t, l, "c")
	}
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	require.Equal(t, []string{path, path + ".1"}, files)
	require.LessOrEqual(t, len(read(t, path)), 100)
	require.LessOrEqual(t, len(read(t, path+".1")), 100)

	again, _ := openLog(t, path)
	had := read(t, path)
	say(t, again, "d")
	require.Equal(t, "ddddddddd\n", strings.TrimPrefix(read(t, path), had), "a new process goes on")
}

// TestLogOfOthers: what somebody has moved or cut off is theirs, and what is no
// plain file stays what it is.
func TestLogOfOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, _ := openLog(t, path)
	fill := func() {
		for range 10 {
			say(t, l, "a")
		}
	}
	fill()
	require.NoError(t, os.Truncate(path, 0))
	fill()
	require.NoFileExists(t, path+".1")
	require.NoError(t, os.Rename(path, path+".theirs"))
	say(t, l, "b")
	require.NoFileExists(t, path+".1")
	require.Equal(t, "bbbbbbbbb\n", read(t, path))
	long, err := l.Write(make([]byte, 200))
	require.NoError(t, err)
	require.Equal(t, 200, long, "a line is never in two files")

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path+".to", link))
	l, _ = openLog(t, link)
	fill()
	fill()
	require.Len(t, read(t, path+".to"), 200)
	require.NoFileExists(t, link+".1")
}

// TestLogThatCannotBegin: no line is lost for the bound's sake.
func TestLogThatCannotBegin(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, _ := openLog(t, path)
	require.NoError(t, os.MkdirAll(filepath.Join(path+".1", "taken"), 0o700))
	for range 12 {
		say(t, l, "a")
	}
	require.Equal(t, 12, strings.Count(read(t, path), "aaaaaaaaa\n"))
	require.Contains(t, read(t, path), `"part":"up","err":"rename `)
}
