// Package logs reads containers' logs, which runtimes write in CRI's form, and
// rotates them, and reads what containers leave as their last words. It knows files,
// and no container: whoever calls says which file is whose, and what makes the
// runtime open a new one.
package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Options choose what of a log is read.
type Options struct {
	Tail       int       // the last lines only; -1 is all
	Since      time.Time // what was said later; zero is all
	Timestamps bool      // each line with its time
	// Follow, if not nil, tells that more may come. The reading ends when it
	// does not and all was read.
	Follow func() bool
}

// poll is how often a followed log is looked at.
const poll = 100 * time.Millisecond

// Read writes a log to w, also the parts of it that were rotated away, until
// its end or that of ctx, which is no error. A log that is not there is an
// error that is os.ErrNotExist.
func Read(ctx context.Context, file string, o Options, w io.Writer) error {
	parts, err := open(file)
	defer closeAll(parts)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if len(parts) == 0 {
		return fmt.Errorf("read log %s: %w", file, os.ErrNotExist)
	}
	r := &reader{o: o, w: w, whole: true}
	left := parts
	if o.Tail >= 0 {
		at := tail(parts, o.Tail)
		closeAll(parts[:at.part]) // what follows may take hours
		left, r.skip = parts[at.part:], at.offset
	}
	if err := r.all(ctx, file, left); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}

// looks bounds how often a log that is rotated all the time is looked at.
const looks = 100

// open opens the parts of a log as they were at one moment: one that is rotated away
// meanwhile is read all the same.
func open(file string) (parts []*os.File, err error) {
	for range looks {
		closeAll(parts)
		names, err := Parts(file)
		if err != nil {
			return nil, err
		}
		if parts, err = openAll(names); err != nil {
			return parts, err
		}
		if same(file, parts) {
			break
		}
	}
	return parts, nil
}

// openAll opens those that are there.
func openAll(names []string) (parts []*os.File, err error) {
	for _, name := range names {
		f, err := os.Open(filepath.Clean(name))
		if errors.Is(err, os.ErrNotExist) {
			continue // it was removed, or put aside
		}
		if err != nil {
			return parts, err
		}
		parts = append(parts, f)
	}
	return parts, nil
}

// same tells that these are all parts of a log still.
func same(file string, parts []*os.File) bool {
	names, err := Parts(file)
	return err == nil && slices.EqualFunc(names, parts, func(name string, f *os.File) bool {
		now, err := os.Stat(name)
		was, errWas := f.Stat()
		return err == nil && errWas == nil && os.SameFile(now, was)
	})
}

func closeAll(parts []*os.File) {
	for _, f := range parts {
		_ = f.Close()
	}
}

// Parts are the files of a log that are there, the oldest first; the last is
// the one that is written, if it is there.
func Parts(file string) ([]string, error) {
	out, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil {
		return nil, err
	}
	prefix := file + "."
	out = slices.DeleteFunc(out, func(f string) bool { return !bytes.HasPrefix([]byte(f), []byte(prefix)) })
	slices.Sort(out) // by the time in their names
	if _, err := os.Stat(file); err == nil {
		out = append(out, file)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return out, nil
}

// place is where a line begins.
type place struct {
	part   int
	offset int64
}

// tail finds where the last n lines begin. Of a line in parts the first counts.
func tail(parts []*os.File, n int) place {
	var starts []place // of the last n lines, a ring once it is full
	next, begins := 0, true
	end := place{part: len(parts) - 1}
	for i, f := range parts {
		in, offset := bufio.NewReader(f), int64(0)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				break // the end; half a line is one that is being written
			}
			if begins && n > 0 {
				if len(starts) < n {
					starts = append(starts, place{i, offset})
				} else {
					starts[next] = place{i, offset}
				}
				next = (next + 1) % n
			}
			_, _, full, _ := parse(line)
			begins = full
			offset += int64(len(line))
		}
		end.offset = offset
	}
	switch {
	case len(starts) == 0:
		return end
	case len(starts) < n:
		return starts[0]
	}
	return starts[next]
}

// parse splits "<time> <stream> <tags> <text>\n".
func parse(line []byte) (stamp, text []byte, full, ok bool) {
	part := bytes.SplitN(bytes.TrimSuffix(line, []byte{'\n'}), []byte{' '}, 4)
	if len(part) != 4 {
		return nil, nil, true, false
	}
	return part[0], part[3], !bytes.Equal(part[2], []byte{'P'}), true
}

// reader writes lines out.
type reader struct {
	o     Options
	w     io.Writer
	skip  int64 // bytes of the first file
	whole bool  // the next line begins one
}

func (r *reader) all(ctx context.Context, file string, parts []*os.File) error {
	for i, f := range parts {
		in := newInput(f)
		_, err := f.Seek(r.skip, io.SeekStart)
		if err == nil {
			err = r.drain(ctx, in)
		}
		r.skip = 0
		if err == nil && i == len(parts)-1 && r.o.Follow != nil {
			in, err = r.follow(ctx, in, file)
		}
		_ = in.file.Close()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// input is one file, and the line of which only a part is there yet.
type input struct {
	file *os.File
	from *bufio.Reader
	half []byte
}

func newInput(f *os.File) *input { return &input{file: f, from: bufio.NewReader(f)} }

// drain writes the whole lines that are there.
func (r *reader) drain(ctx context.Context, in *input) error {
	for ctx.Err() == nil {
		line, err := in.from.ReadBytes('\n')
		in.half = append(in.half, line...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = r.line(in.half)
		}
		if err != nil {
			return err
		}
		in.half = in.half[:0]
	}
	return nil
}

// follow writes what comes, also into the files that take the place of this
// one, until nothing can come any more. It gives back the last.
func (r *reader) follow(ctx context.Context, in *input, file string) (*input, error) {
	for over := false; ctx.Err() == nil; {
		next := successor(in.file, file)
		if next == nil && over {
			return in, nil
		}
		over = next == nil && !r.o.Follow()
		if !over {
			// Also before the next file: the runtime may still be writing to this.
			select {
			case <-ctx.Done():
			case <-time.After(poll):
			}
		}
		err := r.drain(ctx, in) // once more after the end, too
		if next != nil {
			_ = in.file.Close()
			in = newInput(next)
			if err == nil {
				err = r.drain(ctx, in)
			}
		}
		if err != nil {
			return in, err
		}
	}
	return in, nil
}

// successor opens the file that is written now, if it is another one.
func successor(f *os.File, file string) *os.File {
	now, err := os.Stat(file)
	if err != nil {
		return nil // between two
	}
	if was, err := f.Stat(); err != nil || os.SameFile(was, now) {
		return nil
	}
	next, err := os.Open(filepath.Clean(file))
	if err != nil {
		return nil
	}
	return next
}

func (r *reader) line(line []byte) error {
	stamp, text, full, ok := parse(line)
	if !ok {
		return nil // not CRI's form
	}
	if !r.o.Since.IsZero() {
		at, err := time.Parse(time.RFC3339Nano, string(stamp))
		if err != nil || at.Before(r.o.Since) {
			return nil //nolint:nilerr // a line without a time is not one of after
		}
	}
	var out []byte
	if r.whole && r.o.Timestamps {
		out = append(append(out, stamp...), ' ')
	}
	out = append(out, text...)
	if r.whole = full; full {
		out = append(out, '\n')
	}
	_, err := r.w.Write(out)
	return err
}
