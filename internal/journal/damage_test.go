package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/internal/core"
)

// onDisk reads the rows of an open journal from its database.
func onDisk(t *testing.T, j *Journal) *memory {
	t.Helper()
	m := newMemory()
	require.NoError(t, j.db.View(func(tx *bbolt.Tx) error {
		for b := range buckets {
			if err := readBucket(tx, b, m); err != nil {
				return err
			}
		}
		return nil
	}))
	return m
}

// sample is a journal of some records in a file that is closed.
func sample(t testing.TB, dir string) string {
	j, err := Open(dir, Options{})
	require.NoError(t, err)
	for n := range 40 {
		require.NoError(t, j.Begin(t.Context(), record(n)))
	}
	for n := range 10 {
		r := record(n)
		require.NoError(t, j.Forget(t.Context(), r.Key, []core.Released{{Subnet: "s", Pod: r.Pod, IPs: r.Leases[0].IPs, Seq: uint64(n)}}))
	}
	j.Fail(core.Attempt{Pod: record(1).Pod})
	require.NoError(t, j.Close())
	return filepath.Join(dir, dbName)
}

// edit changes the database with bbolt itself.
func edit(t *testing.T, path string, change func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(change))
	require.NoError(t, db.Close())
}

// rewrite changes the file's bytes.
func rewrite(t *testing.T, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(b), 0o600))
}

func put(bucket, key string, value []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		edit(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), value) })
	}
}

func sealed(bucket, key, data string) func(*testing.T, string) {
	return put(bucket, key, row{data: []byte(data)}.seal(key))
}

func drop(bucket string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		edit(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucket)) })
	}
}

func bytesOf(change func(b []byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) { rewrite(t, path, change) }
}

var damages = map[string]func(*testing.T, string){
	"zero bytes":         bytesOf(func([]byte) []byte { return nil }),
	"one byte":           bytesOf(func(b []byte) []byte { return b[:1] }),
	"truncated in pages": bytesOf(func(b []byte) []byte { return b[:3*4096] }),
	"truncated in page":  bytesOf(func(b []byte) []byte { return b[:5*4096+77] }),
	"all zeros":          bytesOf(func(b []byte) []byte { return make([]byte, len(b)) }),
	"text":               bytesOf(func([]byte) []byte { return bytes.Repeat([]byte("not a database\n"), 10000) }),
	"both magics":        bytesOf(func(b []byte) []byte { b[16], b[4096+16] = 0, 0; return b }),
	"both versions":      bytesOf(func(b []byte) []byte { b[20], b[4096+20] = 9, 9; return b }),
	"both checksums":     bytesOf(func(b []byte) []byte { b[16+56]++; b[4096+16+56]++; return b }),
	"pages overwritten": bytesOf(func(b []byte) []byte {
		for i := 2 * 4096; i < len(b); i++ {
			b[i] = 0xAA
		}
		return b
	}),
	"a letter of a record": bytesOf(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"pod-33"`), []byte(`"pod-34"`)) }),
	"no meta bucket":       drop("meta"),
	"no records bucket":    drop("records"),
	"no attempts bucket":   drop("attempts"),
	"no schema":            put("meta", "schema", nil),
	"schema of text":       sealed("meta", "schema", "x"),
	"schema of the past":   sealed("meta", "schema", "0"),
	"short value":          put("records", "c/eth0", []byte("abc")),
	"checksum":             put("records", "c/eth0", []byte("abcdefghijk")),
	"no JSON":              sealed("records", "c/eth0", "{"),
	"unknown field":        sealed("records", "c/eth0", `{"key":{"container":"c","ifname":"eth0"},"colour":"red"}`),
	"two values":           sealed("records", "c/eth0", `{} {}`),
	"wrong type":           sealed("records", "c/eth0", `{"network":7}`),
	"record under a wrong key": func(t *testing.T, path string) {
		edit(t, path, func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("records"))
			return b.Put([]byte("z/eth0"), b.Get([]byte("c33/eth0")))
		})
	},
	"bucket among rows": func(t *testing.T, path string) {
		edit(t, path, func(tx *bbolt.Tx) error {
			_, err := tx.Bucket([]byte("records")).CreateBucket([]byte("c/net1"))
			return err
		})
	},
	"bad release": sealed("released", "12345678", `{"seq":"x"}`),
	"bad attempt": sealed("attempts", "n/p", `[]`),
}

// TestDamageIsQuarantined: whatever is wrong, Open succeeds with an empty
// journal that works, and the damaged file is kept as it was.
func TestDamageIsQuarantined(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := sample(t, dir)
			damage(t, path)
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			var moved []string
			j, err := Open(dir, Options{OnCorrupt: func(p string) { moved = append(moved, p) }})
			require.NoError(t, err)
			require.Len(t, moved, 1)
			require.Regexp(t, `/agent\.db\.corrupt-\d+$`, moved[0])
			kept, err := os.ReadFile(moved[0])
			require.NoError(t, err)
			require.True(t, bytes.Equal(before, kept))
			require.Empty(t, j.Records())
			require.NoError(t, j.Begin(t.Context(), record(1)))
			require.NoError(t, j.Close())
			j = open(t, dir)
			require.Len(t, j.Records(), 1)
		})
	}
}

// TestRandomDamage: flipped bits anywhere either are damage or leave every row
// as it was. That the test process lives is half of what is tested.
func TestRandomDamage(t *testing.T) {
	path := sample(t, t.TempDir())
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	_, want, err := load(path, current)
	require.NoError(t, err)
	used := len(bytes.TrimRight(good, "\x00"))
	r := rand.New(rand.NewPCG(1, 4))
	found := 0
	for range 1500 {
		bad := bytes.Clone(good[:used+4096])
		for range 1 + r.IntN(3) {
			at := r.IntN(used)
			if r.IntN(2) == 0 {
				at = at/4096*4096 + r.IntN(400) // where the structure is
			}
			bad[at] ^= 1 << r.IntN(8)
		}
		require.NoError(t, os.WriteFile(path+".bad", bad, 0o600))
		db, got, err := load(path+".bad", current)
		if bad := (*corruptError)(nil); err != nil {
			require.True(t, errors.As(err, &bad), "%v", err)
			found++
			continue
		}
		require.NoError(t, db.Close())
		require.Equal(t, want.rows[records], got.rows[records])
		require.Equal(t, want.rows[released], got.rows[released])
	}
	require.Greater(t, found, 500)
}

// TestOneTornMetaPage is what a power loss in the last write leaves: the
// transaction before it counts, and it is not damage.
func TestOneTornMetaPage(t *testing.T) {
	dir := t.TempDir()
	path := sample(t, dir)
	rewrite(t, path, func(b []byte) []byte {
		m, err := newestMeta(b)
		require.NoError(t, err)
		b[int(m.txid%2)*4096+16+50] ^= 0xFF
		return b
	})
	j := open(t, dir)
	require.NotEmpty(t, j.Records())
	require.NoError(t, j.Begin(t.Context(), record(100)))
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := sample(t, dir)
	newer, own := strconv.FormatUint(current.version+1, 10), strconv.FormatUint(current.version, 10)
	sealed("meta", "schema", newer)(t, path)
	_, err := Open(dir, Options{OnCorrupt: func(string) { t.Error("quarantined") }})
	require.ErrorIs(t, err, errNewer)
	require.ErrorContains(t, err, "schema "+newer+", this agent knows "+own)
	sealed("meta", "schema", own)(t, path)
	require.Len(t, open(t, dir).Records(), 30)
}

func TestMigration(t *testing.T) {
	path := sample(t, t.TempDir())
	broken := errors.New("broken")
	steps := map[uint64]func(*bbolt.Tx) error{
		current.version:     func(tx *bbolt.Tx) error { return tx.Bucket(bucketNames[attempts]).Delete([]byte("default/pod-1")) },
		current.version + 1: func(*bbolt.Tx) error { return broken },
	}
	_, _, err := load(path, schema{version: current.version + 2, steps: steps})
	require.ErrorIs(t, err, broken)
	db, m, err := load(path, current)
	require.NoError(t, err, "all steps or none")
	require.Len(t, m.rows[attempts], 1)
	require.NoError(t, db.Close())
	steps[current.version+1] = func(*bbolt.Tx) error { return nil }
	db, m, err = load(path, schema{version: current.version + 2, steps: steps})
	require.NoError(t, err)
	require.Empty(t, m.rows[attempts])
	require.Len(t, m.rows[records], 30)
	require.NoError(t, db.Close())
	_, _, err = load(path, current)
	require.ErrorIs(t, err, errNewer)
}

func TestSecondAgentIsToldWhoHoldsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir)
	_, err := Open(dir, Options{OnCorrupt: func(string) { t.Error("quarantined") }})
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "another agent holds the journal: process ")
	// Somebody who opened the file by other means counts too.
	other := sample(t, t.TempDir())
	db, err := bbolt.Open(other, 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	_, err = Open(filepath.Dir(other), Options{OnCorrupt: func(string) { t.Error("quarantined") }})
	require.ErrorIs(t, err, ErrBusy)
}

func TestRefusedByTheSystem(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, dbName), 0o700))
	_, err := Open(dir, Options{OnCorrupt: func(string) { t.Error("quarantined") }})
	require.Error(t, err)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(filepath.Join(file, "state"), Options{})
	require.ErrorContains(t, err, "open journal in "+file)
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	j := open(t, dir)
	require.NoError(t, j.Begin(t.Context(), record(1)))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		st, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), st.Mode(), e.Name())
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"agent.db", "agent.lock", "ballast"}, names)
	st, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700)|os.ModeDir, st.Mode())
}

// TestHalfMadeFile: an agent killed while it made its first file leaves
// agent.db.new, which says nothing.
func TestHalfMadeFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, dbName+".new"), []byte("half"), 0o600))
	require.NoError(t, open(t, dir).Begin(t.Context(), record(1)))
	require.NoFileExists(t, filepath.Join(dir, dbName+".new"))
}

func TestQuarantineLogsWhy(t *testing.T) {
	dir := t.TempDir()
	sealed("records", "c/eth0", "{")(t, sample(t, dir))
	var log strings.Builder
	j, err := Open(dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	require.Contains(t, log.String(), `unexpected EOF`)
}
