package logs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/node/logs"
)

// at is a time in a log, n seconds after midnight.
func at(n int) string { return fmt.Sprintf("2026-01-02T00:00:%02d.5Z", n) }

func line(n int, tag, text string) string { return at(n) + " stdout " + tag + " " + text + "\n" }

func write(t *testing.T, file string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(strings.Join(lines, ""))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "0.log")
	write(t, file+".20260101-000000", line(1, "F", "one"), line(2, "F", "two"))
	write(t, file+".20260101-000001", line(3, "P", "thr"))
	write(t, file, line(4, "F", "ee"), line(5, "F", ""), line(6, "F", "five"), "no log line\n", at(7)+" stdout F hal")
	since, err := time.Parse(time.RFC3339Nano, at(5))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		o    logs.Options
		want string
	}{
		"all":   {logs.Options{Tail: -1}, "one\ntwo\nthree\n\nfive\n"},
		"none":  {logs.Options{Tail: 0}, ""},
		"one":   {logs.Options{Tail: 2}, "five\n"}, // a line that is none counts
		"four":  {logs.Options{Tail: 4}, "three\n\nfive\n"},
		"more":  {logs.Options{Tail: 100}, "one\ntwo\nthree\n\nfive\n"},
		"since": {logs.Options{Tail: -1, Since: since}, "\nfive\n"},
		"times": {logs.Options{Tail: 4, Timestamps: true}, at(3) + " three\n" + at(5) + " \n" + at(6) + " five\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, logs.Read(t.Context(), file, c.o, &out))
			require.Equal(t, c.want, out.String())
		})
	}
	require.ErrorIs(t, logs.Read(t.Context(), file+"x", logs.Options{}, &bytes.Buffer{}), os.ErrNotExist)
}

// heard may be read while it is written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// TestFollow: nothing is lost over a rotation, nor what is said last.
func TestFollow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "0.log")
	write(t, file, line(1, "F", "0"))
	var alive atomic.Bool
	alive.Store(true)
	out, done := &heard{}, make(chan error, 1)
	go func() { done <- logs.Read(t.Context(), file, logs.Options{Tail: -1, Follow: alive.Load}, out) }()
	want := "0\n"
	for i := 1; i <= 3; i++ {
		require.Eventually(t, func() bool { return out.String() == want }, time.Minute, time.Millisecond, want)
		// The runtime writes to the old file until it opens the new one.
		require.NoError(t, os.Rename(file, fmt.Sprintf("%s.%d", file, i)))
		write(t, fmt.Sprintf("%s.%d", file, i), line(1, "F", fmt.Sprint("old ", i)))
		write(t, file, line(1, "F", fmt.Sprint("new ", i)))
		want += fmt.Sprintf("old %d\nnew %d\n", i, i)
	}
	require.Eventually(t, func() bool { return out.String() == want }, time.Minute, time.Millisecond)
	write(t, file, line(1, "F", "end"))
	alive.Store(false)
	require.NoError(t, <-done)
	require.Equal(t, want+"end\n", out.String())
}

func TestFollowEndsWithItsContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "0.log")
	write(t, file, line(1, "F", "0"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, logs.Read(ctx, file, logs.Options{Tail: -1, Follow: func() bool { return true }}, &bytes.Buffer{}))
}

func TestRotate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "0.log")
	limits := logs.Limits{Size: 40, Files: 3}
	opened := 0
	reopen := func() error { opened++; return os.WriteFile(file, nil, 0o600) }
	require.ErrorIs(t, logs.Rotate(file, limits, time.Now(), func() error { return os.ErrInvalid }), os.ErrInvalid)
	require.NoError(t, logs.Rotate(file, limits, time.Now(), reopen))
	require.Equal(t, 1, opened, "there was none, as after a rename alone")
	opened = 0
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		write(t, file, line(i, "F", "x"))
		require.NoError(t, logs.Rotate(file, limits, now.Add(time.Duration(i)*time.Second), reopen))
		require.Equal(t, i, opened, "it is short")
		write(t, file, line(i, "F", fmt.Sprint(i)))
		require.NoError(t, logs.Rotate(file, limits, now.Add(time.Duration(i)*time.Second), reopen))
		require.Equal(t, i+1, opened)
	}
	parts, err := logs.Parts(file)
	require.NoError(t, err)
	require.Len(t, parts, 3)
	var out bytes.Buffer
	require.NoError(t, logs.Read(t.Context(), file, logs.Options{Tail: -1}, &out))
	require.Equal(t, "x\n3\nx\n4\n", out.String())

	// A runtime that does not open a new one goes on with the old.
	write(t, file, line(1, "F", "a long line"), line(1, "F", "b"))
	require.Error(t, logs.Rotate(file, limits, now.Add(time.Hour), func() error { return os.ErrInvalid }))
	out.Reset()
	require.NoError(t, logs.Read(t.Context(), file, logs.Options{Tail: 1}, &out))
	require.Equal(t, "b\n", out.String())
	require.FileExists(t, file)
	require.NoError(t, logs.Remove(file))
	parts, err = logs.Parts(file)
	require.NoError(t, err)
	require.Empty(t, parts)
}

// TestReadWhileRotated: no line is missing of a log that is put aside while it is read.
func TestReadWhileRotated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "0.log")
	const tail, rotations = 50, 500
	next := 0
	more := func() {
		var lines []string
		for range 2 * tail {
			lines = append(lines, line(1, "F", fmt.Sprint(next)))
			next++
		}
		write(t, file, lines...)
	}
	more()
	more()
	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		defer over.Store(true)
		for i := range rotations {
			if err := logs.Rotate(file, logs.Limits{Size: 1, Files: 3}, time.Unix(int64(i), 0), func() error { more(); return nil }); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for !over.Load() {
		var out bytes.Buffer
		require.NoError(t, logs.Read(t.Context(), file, logs.Options{Tail: tail}, &out))
		said := strings.Fields(out.String())
		require.GreaterOrEqual(t, len(said), tail)
		first, err := strconv.Atoi(said[0])
		require.NoError(t, err)
		for i, text := range said {
			require.Equal(t, strconv.Itoa(first+i), text)
		}
	}
	require.NoError(t, <-done)
}
