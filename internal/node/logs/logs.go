// Package logs reads containers' logs, which runtimes write in CRI's form, and
// rotates them. It knows files, and no container: whoever calls says which file
// is whose, and what makes the runtime open a new one.
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
	parts, err := Parts(file)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if len(parts) == 0 {
		return fmt.Errorf("read log %s: %w", file, os.ErrNotExist)
	}
	r := &reader{o: o, w: w, whole: true}
	if o.Tail >= 0 {
		at, err := tail(parts, o.Tail)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		parts, r.skip = parts[at.part:], at.offset
	}
	if err := r.all(ctx, file, parts); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
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
func tail(parts []string, n int) (place, error) {
	var starts []place // of the last n lines, a ring once it is full
	next, begins := 0, true
	end := place{part: len(parts) - 1}
	for i, name := range parts {
		f, err := os.Open(filepath.Clean(name))
		if errors.Is(err, os.ErrNotExist) {
			continue // rotated away meanwhile
		}
		if err != nil {
			return place{}, err
		}
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
		_ = f.Close()
	}
	switch {
	case len(starts) == 0:
		return end, nil
	case len(starts) < n:
		return starts[0], nil
	}
	return starts[next], nil
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

func (r *reader) all(ctx context.Context, file string, parts []string) error {
	for i, name := range parts {
		f, err := os.Open(filepath.Clean(name))
		if errors.Is(err, os.ErrNotExist) {
			continue // rotated away meanwhile
		}
		if err != nil {
			return err
		}
		in := newInput(f)
		if _, err = f.Seek(r.skip, io.SeekStart); err == nil {
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
