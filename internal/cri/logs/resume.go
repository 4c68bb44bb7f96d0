package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What was written already is read back from the log itself: no second record
// could disagree with it after a crash. The engine is asked for everything since
// a little before the last line, and lines that are there are left out.

// slack is how much older than the last line a line may be that the engine
// stored after it: both streams take their times before they wait for one lock.
const slack = 2 * time.Second

// tailSize is how much of a file is read back at first, in bytes; kubelet rotates
// at 10 MiB unless told otherwise.
const tailSize = 16 << 20

// key knows an entry again. Entries that are the same in all are counted.
type key struct {
	stamp  string
	stream stream
	full   bool
	sum    uint64
}

// written is what the log holds near its end.
type written struct {
	seed   maphash.Seed
	recent []noted // not older than since, as far as was read back
	count  map[key]int
	first  time.Time
	last   time.Time
	// open is the time of the last part of each stream's line that has no end
	// yet: the rest of such a line bears the time of its beginning.
	open map[stream]time.Time
}

// noted is an entry of the log.
type noted struct {
	at  time.Time
	key key
}

// resume reads back what a log holds, and its rotated predecessors as far as
// they reach into the time that is asked for.
func resume(path string) (*written, error) {
	w := &written{seed: maphash.MakeSeed(), open: map[stream]time.Time{}}
	older, err := rotated(path)
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{path}, older...) {
		if err := w.prepend(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if !w.first.IsZero() && w.first.Before(w.since()) {
			break
		}
	}
	w.count = make(map[key]int, len(w.recent))
	for _, n := range w.recent {
		w.count[n.key]++
	}
	w.recent = nil
	return w, nil
}

// rotated are the files that kubelet renamed or compressed, the newest first:
// <path>.<time>[.gz], whose names sort by time.
func rotated(path string) ([]string, error) {
	names, err := filepath.Glob(globQuote(path) + ".*")
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, ".tmp") })
	slices.Sort(names)
	slices.Reverse(names)
	return names, err
}

// globQuote keeps Glob from reading a pattern in a path.
var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func globQuote(path string) string { return globQuoter.Replace(path) }

// prepend reads one file that is older than all so far: as much of its end as
// reaches back to since.
func (w *written) prepend(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var older written
	for size := int64(tailSize); ; size *= 4 {
		older = written{seed: w.seed, open: map[stream]time.Time{}}
		r, cut, err := tail(f, size)
		if err != nil {
			return err
		}
		if err := older.read(r); err != nil {
			return err
		}
		if !cut || older.first.Before(older.since()) {
			break
		}
	}
	w.recent = append(older.recent, w.recent...)
	if !older.first.IsZero() {
		w.first = older.first
	}
	if w.last.IsZero() {
		w.last = older.last
	}
	for s, at := range older.open {
		if _, known := w.open[s]; !known {
			w.open[s] = at
		}
	}
	return nil
}

// tail is the end of a log of about size bytes, from a line's beginning, or the
// whole of one that is smaller or compressed.
func tail(f *os.File, size int64) (r *bufio.Reader, cut bool, err error) {
	if strings.HasSuffix(f.Name(), ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, false, err
		}
		return bufio.NewReaderSize(z, 4*chunk), false, nil
	}
	st, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(0, st.Size()-size)
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, false, err
	}
	r = bufio.NewReaderSize(f, 4*chunk)
	if from == 0 {
		return r, false, nil
	}
	_, err = r.ReadBytes('\n')
	return r, true, err
}

func (w *written) read(r *bufio.Reader) error {
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what has no end was never written
		}
		if err != nil {
			return err
		}
		if e, at, ok := parseLine(bytes.TrimSuffix(line, []byte{'\n'})); ok {
			w.note(e, at)
		}
	}
}

func (w *written) note(e entry, at time.Time) {
	if w.first.IsZero() {
		w.first = at
	}
	w.last = at
	w.open[e.stream] = time.Time{}
	if !e.full {
		w.open[e.stream] = at
	}
	w.recent = append(w.recent, noted{at, w.key(e)})
	// A long log must not be held in memory when only its end matters.
	for since := w.since(); w.recent[0].at.Before(since); {
		w.recent = w.recent[1:]
	}
}

func (w *written) key(e entry) key {
	return key{string(e.stamp), e.stream, e.full, maphash.Bytes(w.seed, e.data)}
}

// since is from when on the engine has to tell; zero is from the beginning.
func (w *written) since() time.Time {
	if w.last.IsZero() {
		return time.Time{}
	}
	since := w.last.Add(-slack)
	for _, at := range w.open {
		if !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	return since
}

// has tells that the entry is in the log, once for each time that it is.
func (w *written) has(e entry) bool {
	if len(w.count) == 0 {
		return false
	}
	k := w.key(e)
	n := w.count[k]
	if n == 0 {
		return false
	}
	if n == 1 {
		delete(w.count, k)
	} else {
		w.count[k] = n - 1
	}
	return true
}

// unix is a time in the engine's form; "" for zero.
func unix(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	nanos := strconv.Itoa(1e9 + t.Nanosecond())[1:]
	return strconv.FormatInt(t.Unix(), 10) + "." + nanos
}
