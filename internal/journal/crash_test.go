package journal

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// stormEnv makes the test binary a child that writes until it is killed.
const stormEnv = "FAIRLEAD_JOURNAL_STORM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(stormEnv); dir != "" {
		if err := storm(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// storm begins, commits and forgets from many goroutines and prints each
// acknowledged step after it was acknowledged: "<n> begun", "<n> committed",
// "<n> forgetting" before a Forget and "<n> forgotten".
func storm(dir string) error {
	ctx := context.Background()
	j, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for g := range 20 {
		go func() {
			for n := g; ; n += 20 {
				if err := stormStep(ctx, j, n); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

func stormStep(ctx context.Context, j *Journal, n int) error {
	r := record(n)
	if err := j.Begin(ctx, r); err != nil {
		return err
	}
	fmt.Printf("%d begun\n", n)
	if err := j.Commit(ctx, r); err != nil {
		return err
	}
	fmt.Printf("%d committed\n", n)
	if n%3 != 0 {
		return nil
	}
	fmt.Printf("%d forgetting\n", n)
	if err := j.Forget(ctx, r.Key, []core.Released{{Subnet: "s", Pod: r.Pod, IPs: r.Leases[0].IPs, Seq: uint64(n) + 1}}); err != nil {
		return err
	}
	fmt.Printf("%d forgotten\n", n)
	return nil
}

// TestKilledInAStorm kills a writing process at three points of its life, each
// time on top of what the last one left.
func TestKilledInAStorm(t *testing.T) {
	for _, lines := range []int{1, 300, 3000} {
		t.Run(fmt.Sprint(lines), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			steps := killAfter(t, dir, lines)
			require.GreaterOrEqual(t, len(steps), lines)
			j := open(t, dir)
			seen := map[string]string{} // last step of each n
			for _, s := range steps {
				n, step, _ := strings.Cut(s, " ")
				seen[n] = step
			}
			released := map[uint64]bool{}
			for _, r := range j.Released() {
				released[r.Seq] = true
			}
			for n, step := range seen {
				checkStep(t, j, released, n, step)
			}
		})
	}
}

// killAfter runs a storm, kills it when it has printed so many lines, and
// returns all complete lines.
func killAfter(t *testing.T, dir string, lines int) []string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), stormEnv+"="+dir)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	var got []string
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break // a line cut by the kill acknowledges nothing
		}
		got = append(got, strings.TrimSpace(line))
		if len(got) == lines {
			require.NoError(t, child.Process.Signal(syscall.SIGKILL))
		}
	}
	require.Error(t, child.Wait())
	require.Empty(t, stderr.String())
	return got
}

func checkStep(t *testing.T, j *Journal, released map[uint64]bool, n, step string) {
	t.Helper()
	var i int
	_, err := fmt.Sscan(n, &i)
	require.NoError(t, err)
	r, there := j.Get(record(i).Key)
	switch step {
	case "begun": // its Commit may have happened, unacknowledged
		require.True(t, there, n)
	case "committed":
		require.True(t, there, n)
		require.Equal(t, core.Added, r.Phase)
	case "forgetting": // both or neither
		require.Equal(t, there, !released[uint64(i)+1], n)
	case "forgotten":
		require.False(t, there, n)
		require.True(t, released[uint64(i)+1], n)
	default:
		t.Errorf("unknown step %q", step)
	}
}

// tmpfs mounts a small disk of its own; it is unmounted at the end.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// fill writes a file until the disk has less than one page free.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}

// bulky is a record that needs room.
func bulky(n int) core.Record {
	r := record(n)
	r.Error = strings.Repeat("x", 8000)
	return r
}

// TestFullDisk: ADDs are refused with code 5 and leave nothing, DELs go on,
// and when there is room again all is as before.
func TestFullDisk(t *testing.T) {
	dir := tmpfs(t, "6m")
	j := open(t, dir)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	n, err := 0, error(nil)
	for ; err == nil && n < 5000; n++ {
		err = j.Begin(t.Context(), bulky(n))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, core.CodeIO, core.CodeOf(err))
	require.ErrorContains(t, j.Healthy(), "disk is full")
	require.Equal(t, core.CodeIO, core.CodeOf(j.Healthy()))
	_, there := j.Get(bulky(n - 1).Key)
	require.False(t, there)
	require.NoFileExists(t, filepath.Join(dir, ballastName))
	require.Equal(t, core.CodeIO, core.CodeOf(j.Begin(t.Context(), record(9000))), "the ballast is not for ADDs")

	fullRestart(t, dir, j)
	j = open(t, dir)
	require.Len(t, j.Records(), n-1)
	for i := range n - 1 {
		r := bulky(i)
		r.Phase = core.Deleting
		require.NoError(t, j.Save(t.Context(), r))
		require.NoError(t, j.Forget(t.Context(), r.Key, []core.Released{{Subnet: "s", Pod: r.Pod, IPs: r.Leases[0].IPs, Seq: uint64(i) + 1}}))
	}
	require.Empty(t, j.Records())
	require.NoError(t, os.Remove(filler))
	require.NoError(t, j.Begin(t.Context(), record(1)), "the room is noticed at once")
	require.NoError(t, j.Healthy())
	require.FileExists(t, filepath.Join(dir, ballastName))
}

// fullRestart closes and opens a journal on a full disk: the file is good, and
// Healthy says what the matter is.
func fullRestart(t *testing.T, dir string, j *Journal) {
	t.Helper()
	fill(t, filepath.Join(dir, "filler"))
	require.NoError(t, j.Close())
	j = open(t, dir)
	require.ErrorContains(t, j.Healthy(), "disk is full")
	require.NoError(t, j.Close())
}

// TestRoomIsNoticedWithoutWrites: a node that is not ready gets no ADDs, so
// that Healthy must not wait for one.
func TestRoomIsNoticedWithoutWrites(t *testing.T) {
	t.Parallel()
	dir := tmpfs(t, "4m")
	require.NoError(t, open(t, dir).Close())
	require.NoError(t, os.Remove(filepath.Join(dir, ballastName)))
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	j := open(t, dir)
	require.Error(t, j.Healthy())
	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return j.Healthy() == nil }, 10*retryDelay, retryDelay/10)
}

// TestNoRoomAtAll: a first start on a full disk fails and leaves nothing that
// a later start would take for damage.
func TestNoRoomAtAll(t *testing.T) {
	dir := tmpfs(t, "256k")
	fill(t, filepath.Join(dir, "filler"))
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, os.Remove(filepath.Join(dir, "filler")))
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=4m"))
	require.NoError(t, open(t, dir).Begin(t.Context(), record(1)))
}

// TestFailedTransaction: what a failed transaction may have left on disk is
// put right by the next one, for bbolt cannot tell whether it took effect.
func TestFailedTransaction(t *testing.T) {
	j := open(t, t.TempDir())
	require.NoError(t, j.Begin(t.Context(), record(1)))
	// The transaction happened and the journal was told that it failed.
	tx := j.stage([]*op{{kind: kindBegin, key: record(2).Key, row: newRow([]byte(`{}`), false)}, {kind: kindForget, key: record(1).Key}})
	require.NoError(t, j.update(tx))
	j.mu.Lock()
	tx.spoil(j.mem)
	j.mu.Unlock()
	require.Len(t, onDisk(t, j).rows[records], 1)
	require.NoError(t, j.Begin(t.Context(), record(3)))
	rows := onDisk(t, j).rows[records]
	require.Len(t, rows, 2)
	require.Contains(t, rows, record(1).Key.String())
	require.Contains(t, rows, record(3).Key.String())
	require.False(t, j.unfinished())
}

// TestPanicInTheDatabaseIsAnError: bbolt's assertions panic; and a database
// that was closed behind the journal's back fails every transaction.
func TestPanicInTheDatabaseIsAnError(t *testing.T) {
	j := open(t, t.TempDir())
	err := func() (err error) {
		defer catch(&err)
		panic("assertion failed: page 7 already freed")
	}()
	require.ErrorIs(t, err, errPanic)
	require.NoError(t, j.db.Close())
	err = j.Begin(t.Context(), record(1))
	require.Equal(t, core.CodeIO, core.CodeOf(err))
	require.Equal(t, err != nil, j.Healthy() != nil)
	j.mu.Lock()
	clear(j.mem.stale)
	j.mu.Unlock()
	j.failed.Store(nil)
}
