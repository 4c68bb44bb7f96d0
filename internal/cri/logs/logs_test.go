package logs_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/internal/cri/enginetest"
	"github.com/fairlead/fairlead/internal/cri/logs"
)

const label = "test.logpath"

type bed struct {
	t *testing.T
	e *enginetest.Engine
	w *logs.Writers
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, e: enginetest.Start(t)}
	b.restart()
	t.Cleanup(func() { b.w.Close() })
	return b
}

// restart is another process after the one so far: nothing is carried over.
func (b *bed) restart() {
	if b.w != nil {
		b.w.Close()
	}
	b.w = logs.New(b.t.Context(), b.e.Client, label, slog.New(slog.NewTextHandler(b.t.Output(), nil)))
}

// create makes a container whose log goes to path.
func (b *bed) create(path string, tty bool, script string) string {
	b.t.Helper()
	return b.e.Create(func(o *docker.ContainerCreateOptions) {
		o.Config.Labels = map[string]string{label: path}
		o.Config.Tty = tty
		o.HostConfig.LogConfig = b.w.Config(path)
	}, "sh", "-c", script)
}

func (b *bed) start(id string) {
	b.t.Helper()
	_, err := b.e.ContainerStart(b.t.Context(), id, docker.ContainerStartOptions{})
	require.NoError(b.t, err)
	require.NoError(b.t, b.w.Follow(b.t.Context(), id))
}

// end waits for the container and then for its log.
func (b *bed) end(id string) {
	b.t.Helper()
	w := b.e.ContainerWait(b.t.Context(), id, docker.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-w.Result:
	case err := <-w.Error:
		require.NoError(b.t, err)
	}
	b.settle(id)
}

func (b *bed) settle(id string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	b.w.Settle(ctx, id)
	require.NoError(b.t, ctx.Err(), "the log settles")
}

// line is a line of the log in CRI's form.
type line struct{ stream, tag, text string }

var form = regexp.MustCompile(`^(\S+) (stdout|stderr) ([FP]) (.*)$`)

func read(t *testing.T, paths ...string) (out []line) {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(b) == 0 {
			continue
		}
		text, whole := strings.CutSuffix(string(b), "\n")
		require.True(t, whole, "the last line has its end")
		for _, l := range strings.Split(text, "\n") {
			m := form.FindStringSubmatch(l)
			require.NotNil(t, m, "%.100q", l)
			_, err := time.Parse(time.RFC3339Nano, m[1])
			require.NoError(t, err)
			out = append(out, line{m[2], m[3], m[4]})
		}
	}
	return out
}

// ended is how many lines of a log are whole: the writer may be in the midst of
// the next one.
func ended(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("\n"))
}

// numbers proves that a log holds "n <i>" for i from 1 to n, once each, in order.
func numbers(t *testing.T, n int, got []line) {
	t.Helper()
	want := 1
	for _, l := range got {
		require.Equal(t, line{"stdout", "F", fmt.Sprintf("n %d", want)}, l, "line %d of %d", want, n)
		want++
	}
	require.Equal(t, n, want-1, "lines")
}

func TestForm(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "pod", "ctr", "0.log")
	id := b.create(path, false, `echo out; echo; echo err >&2; printf 'a b\r\n'; printf 'no end'`)
	b.start(id)
	_, err := os.Stat(path)
	require.NoError(t, err, "the file is there as soon as the container runs")
	b.end(id)
	got := read(t, path)
	require.ElementsMatch(t, []line{
		{"stdout", "F", "out"}, {"stdout", "F", ""}, {"stderr", "F", "err"}, {"stdout", "F", "a b\r"}, {"stdout", "P", "no end"},
	}, got)

	// All again changes nothing: a new process, and what is asked of it.
	b.restart()
	b.settle(id)
	require.NoError(t, b.w.Follow(t.Context(), id))
	b.settle(id)
	require.Equal(t, got, read(t, path))
}

// TestLongLines has lines around the 16 KiB at which they are split, with
// characters across the border and bytes that are no characters.
func TestLongLines(t *testing.T) {
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("tty=%v", tty), func(t *testing.T) {
			b := newBed(t)
			path := filepath.Join(t.TempDir(), "0.log")
			// The terminal must not make \r\n of \n, so that both cases read the same.
			id := b.create(path, tty, `test -t 1 && stty -onlcr
long() { printf "$1"; head -c $2 /dev/zero | tr '\0' x; printf "$3\n"; }
long '' 16383; long '' 16384; long '' 16385; long '' 40000
long '' 16383 'é'
printf '\377\376\n'; echo end`)
			b.start(id)
			b.end(id)
			x := func(n int) string { return strings.Repeat("x", n) }
			want := []line{
				{"stdout", "F", x(16383)},
				{"stdout", "P", x(16384)}, {"stdout", "F", ""},
				{"stdout", "P", x(16384)}, {"stdout", "F", x(1)},
				{"stdout", "P", x(16384)}, {"stdout", "P", x(16384)}, {"stdout", "F", x(40000 - 2*16384)},
				{"stdout", "P", x(16383) + "\xc3"}, {"stdout", "F", "\xa9"},
				{"stdout", "F", "\xff\xfe"}, {"stdout", "F", "end"},
			}
			require.Equal(t, want, read(t, path))
			b.restart()
			b.settle(id)
			require.Equal(t, want, read(t, path))
		})
	}
}

// counter prints "n 1", "n 2" ... for some seconds, with bursts between pauses.
const counter = `i=0; while [ $i -lt %d ]; do i=$((i+1)); echo n $i; [ $((i %% 500)) = 0 ] && sleep 0.05; done`

func TestRestartsLoseAndRepeatNothing(t *testing.T) {
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("tty=%v", tty), func(t *testing.T) {
			b := newBed(t)
			path := filepath.Join(t.TempDir(), "0.log")
			script := fmt.Sprintf(counter, 20000)
			if tty {
				script = "stty -onlcr; " + script
			}
			id := b.create(path, tty, script)
			b.start(id)
			for i := range 10 {
				time.Sleep(100 * time.Millisecond) // the container goes on meanwhile
				b.restart()
				if i%3 == 0 { // died in the middle of a line
					f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
					require.NoError(t, err)
					_, err = f.WriteString("2026-01-01T00:00:0")
					require.NoError(t, err)
					require.NoError(t, f.Close())
				}
				require.NoError(t, b.w.Follow(t.Context(), id))
			}
			b.end(id)
			numbers(t, 20000, read(t, path))
		})
	}
}

// TestBothStreamsSurviveRestarts: the streams' times are not in the order of
// their lines.
func TestBothStreamsSurviveRestarts(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "0.log")
	id := b.create(path, false, `(`+fmt.Sprintf(counter, 10000)+`) & (`+fmt.Sprintf(counter, 10000)+`) >&2 & wait`)
	b.start(id)
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		b.restart()
		require.NoError(t, b.w.Follow(t.Context(), id))
	}
	b.end(id)
	var out, err []line
	for _, l := range read(t, path) {
		if l.stream == "stderr" {
			l.stream = "stdout"
			err = append(err, l)
		} else {
			out = append(out, l)
		}
	}
	numbers(t, 10000, out)
	numbers(t, 10000, err)
}

// TestBurst has more output within the slack of a restart than is read back at
// first.
func TestBurst(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "0.log")
	const lines = 500000
	id := b.create(path, false, fmt.Sprintf("seq %d | sed 's/^/n /'", lines))
	b.start(id)
	b.end(id)
	b.restart()
	b.settle(id)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Greater(t, st.Size(), int64(16<<20))
	b.numbersOf(path, lines)
}

// numbersOf is numbers for a log that is too large to be held in lines.
func (b *bed) numbersOf(path string, n int) {
	b.t.Helper()
	f, err := os.Open(path)
	require.NoError(b.t, err)
	defer f.Close()
	got, s := 0, bufio.NewScanner(f)
	for s.Scan() {
		got++
		if want := fmt.Sprintf(" stdout F n %d", got); !strings.HasSuffix(s.Text(), want) {
			require.Failf(b.t, "not the line that was due", "%q, want %q", s.Text(), want)
		}
	}
	require.NoError(b.t, s.Err())
	require.Equal(b.t, n, got, "lines")
}

// TestEngineAway: dockerd is killed and comes back, the container lives on.
func TestEngineAway(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "0.log")
	id := b.create(path, false, `seq 1000 | sed 's/^/n /'; until [ -e /go ]; do sleep 0.05; done; seq 1001 2000 | sed 's/^/n /'`)
	b.start(id)
	require.Eventually(t, func() bool { return ended(path) == 1000 }, time.Minute, 20*time.Millisecond)
	b.e.Kill()
	b.e.Engine.Run()
	made, err := b.e.ExecCreate(t.Context(), id, docker.ExecCreateOptions{Cmd: []string{"touch", "/go"}})
	require.NoError(t, err)
	_, err = b.e.ExecStart(t.Context(), made.ID, docker.ExecStartOptions{})
	require.NoError(t, err)
	b.end(id) // which does not wait for an engine that is away
	require.Eventually(t, func() bool { return ended(path) >= 2000 }, time.Minute, 20*time.Millisecond)
	b.settle(id)
	numbers(t, 2000, read(t, path))
}

// TestRotation does as kubelet does: rename, reopen; in between a restart.
func TestRotation(t *testing.T) {
	b := newBed(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	id := b.create(path, false, fmt.Sprintf(counter, 20000))
	b.start(id)
	var files []string
	for i := range 8 {
		time.Sleep(100 * time.Millisecond)
		old := fmt.Sprintf("%s.20260101-00000%d", path, i)
		require.NoError(t, os.Rename(path, old))
		files = append(files, old)
		require.NoError(t, b.w.Reopen(t.Context(), id))
		if i%2 == 0 {
			b.restart()
			require.NoError(t, b.w.Follow(t.Context(), id))
		}
	}
	b.end(id)
	numbers(t, 20000, read(t, append(files, path)...))

	require.NoError(t, os.Remove(path))
	err := b.w.Reopen(t.Context(), id)
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.NoFileExists(t, path, "no file for a container that does not run")
	require.Equal(t, codes.FailedPrecondition, status.Code(b.w.Reopen(t.Context(), "nobody")))
}

// TestFullDisk: the container goes on, who waits for its log does not wait for
// the disk, and nothing is lost when there is room again.
func TestFullDisk(t *testing.T) {
	b := newBed(t)
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	path := filepath.Join(dir, "0.log")
	id := b.create(path, false, fmt.Sprintf(counter, 10000))
	b.start(id)
	b.end(id)
	require.Less(t, ended(path), 10000, "the disk was full")

	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=8m"))
	require.Eventually(t, func() bool { return ended(path) == 10000 }, time.Minute, 50*time.Millisecond)
	b.settle(id)
	numbers(t, 10000, read(t, path))
	b.w.Close() // the file is open no more
}

func TestForget(t *testing.T) {
	b := newBed(t)
	path := filepath.Join(t.TempDir(), "0.log")
	id := b.create(path, false, "echo up; sleep 3600")
	b.start(id)
	require.Eventually(t, func() bool { return ended(path) == 1 }, time.Minute, 20*time.Millisecond)
	b.w.Forget(id)
	b.w.Forget(id)
	require.Equal(t, codes.FailedPrecondition, status.Code(b.w.Reopen(t.Context(), id)))
	require.Equal(t, codes.NotFound, status.Code(b.w.Follow(t.Context(), "nobody")))
	b.w.Settle(t.Context(), "nobody")

	// Made by somebody else, with a log that the engine cannot read.
	odd := b.e.Run(func(o *docker.ContainerCreateOptions) {
		o.Config.Labels = map[string]string{label: path}
		o.HostConfig.LogConfig = container.LogConfig{Type: "none"}
	}, "true")
	b.end(odd)

	silent := b.create("", false, "echo never seen")
	b.start(silent)
	b.end(silent)
}
