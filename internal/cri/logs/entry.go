package logs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// stream says where an entry came from; the values are those of the engine's
// multiplexed form (moby/api/pkg/stdcopy).
type stream byte

const (
	stdout    stream = 1
	stderr    stream = 2
	systemErr stream = 3 // the engine's own complaint about its log
)

func (s stream) String() string {
	if s == stderr {
		return "stderr"
	}
	return "stdout"
}

// stampLayout is how the engine writes times: always UTC and 30 bytes, also a
// valid RFC3339Nano, so it goes into the log as it is.
const stampLayout = "2006-01-02T15:04:05.000000000Z07:00"

const stampSize = 30

// chunk is the most that the engine keeps as one entry; a longer line comes in
// parts of exactly this size (moby daemon/logger/copier.go). It is also the
// length at which CRI's runtimes split lines.
const chunk = 16 << 10

// maxFrame bounds what is believed of a frame's length.
const maxFrame = 1 << 20

// entry is one line of the engine's log, or a part of one. Its bytes are valid
// until the next is read.
type entry struct {
	stamp  []byte
	stream stream
	full   bool // it ends its line
	data   []byte
}

// appendTo writes the entry in CRI's form:
// <RFC3339Nano> stdout|stderr P|F <data>\n.
func (e entry) appendTo(b []byte) []byte {
	b = append(append(b, e.stamp...), ' ')
	b = append(append(b, e.stream.String()...), ' ')
	if e.full {
		b = append(b, 'F', ' ')
	} else {
		b = append(b, 'P', ' ')
	}
	return append(append(b, e.data...), '\n')
}

// parseLine is the way back from CRI's form, without the newline.
func parseLine(line []byte) (entry, time.Time, bool) {
	parts := bytes.SplitN(line, []byte{' '}, 4)
	if len(parts) != 4 {
		return entry{}, time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	e := entry{stamp: parts[0], stream: stdout, full: string(parts[2]) == "F", data: parts[3]}
	if string(parts[1]) == "stderr" {
		e.stream = stderr
	}
	return e, at, err == nil
}

// decoder reads the engine's log entry by entry.
//
// The engine marks the end of a line by a newline, but its driver "local"
// forgets that of a line in parts (20.10). Then the end is known by its length:
// parts are of chunk bytes, and what is shorter ends the line.
type decoder struct {
	r    *bufio.Reader
	tty  bool
	buf  []byte
	open map[stream]time.Time // the time of a line of which only parts came yet
}

func newDecoder(r io.Reader, tty bool) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, 4*chunk), tty: tty, open: map[stream]time.Time{}}
}

// pending tells that more was received: the next entry probably costs no wait.
func (d *decoder) pending() bool { return d.r.Buffered() > 0 }

// next is io.EOF at the clean end of the log.
func (d *decoder) next() (entry, error) {
	read := d.framed
	if d.tty {
		read = d.raw
	}
	e, err := read()
	if err != nil {
		return e, err
	}
	e.data, e.full = bytes.CutSuffix(e.data, []byte{'\n'})
	e.full = e.full || !d.open[e.stream].IsZero() && len(e.data) < chunk
	d.open[e.stream] = time.Time{}
	if !e.full {
		d.open[e.stream], _ = time.Parse(stampLayout, string(e.stamp))
	}
	return e, nil
}

// framed reads one frame: stream, three zeros, length (big endian), then stamp,
// blank and data with its newline, if it has one.
func (d *decoder) framed() (entry, error) {
	var head [8]byte
	if _, err := io.ReadFull(d.r, head[:]); err != nil {
		return entry{}, err
	}
	n := int(binary.BigEndian.Uint32(head[4:]))
	if n > maxFrame {
		return entry{}, fmt.Errorf("read log: a frame of %d bytes", n)
	}
	if cap(d.buf) < n {
		d.buf = make([]byte, n)
	}
	d.buf = d.buf[:n]
	if _, err := io.ReadFull(d.r, d.buf); err != nil {
		return entry{}, broken(err)
	}
	if stream(head[0]) == systemErr {
		return entry{}, fmt.Errorf("read log: Docker says: %s", bytes.TrimSpace(d.buf))
	}
	stamp, data, ok := bytes.Cut(d.buf, []byte{' '})
	if !ok || !isStamp(stamp) {
		return entry{}, fmt.Errorf("read log: a frame without its time: %.64q", d.buf)
	}
	return entry{stamp: stamp, stream: stream(head[0]), data: data}, nil
}

// raw reads one entry of a terminal's log, which has no frames: an entry ends
// with its newline, or after chunk bytes, or with the log. The forgotten newline
// after a line's last part is known by the time of the next entry; so that part
// is seen when the next line comes.
func (d *decoder) raw() (entry, error) {
	d.buf = append(d.buf[:0], make([]byte, stampSize+1)...)
	if n, err := io.ReadFull(d.r, d.buf); err != nil {
		if n > 0 {
			return entry{}, fmt.Errorf("read log: it ends with %q: %w", d.buf[:n], broken(err))
		}
		return entry{}, err
	}
	if !isStamp(d.buf[:stampSize]) || d.buf[stampSize] != ' ' {
		rest, _ := d.r.Peek(min(d.r.Buffered(), 200))
		return entry{}, fmt.Errorf("read log: no time before %q", append(d.buf, rest...))
	}
	line, err := d.peekLine()
	if err != nil {
		return entry{}, err
	}
	if began := d.open[stdout]; !began.IsZero() {
		line = line[:nextStamp(line, began)]
	}
	_, err = d.r.Discard(len(line)) // its bytes stay until the next read
	return entry{stamp: d.buf[:stampSize], stream: stdout, data: line}, err
}

// peekLine waits for a newline, chunk bytes or the end of the log, and gives
// what is there up to that.
func (d *decoder) peekLine() ([]byte, error) {
	for n := 0; ; n++ {
		n = min(max(n, d.r.Buffered()), chunk)
		b, err := d.r.Peek(n)
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return b[:i+1], nil
		}
		if n == chunk || errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// nextStamp is where in b the time of an entry stands that was made after a line
// began; without any it is the end. What the container itself prints there is
// older, or not yet.
func nextStamp(b []byte, began time.Time) int {
	for i := range b {
		end := i + stampSize
		if end >= len(b) {
			break
		}
		if b[end-1] != 'Z' || b[end] != ' ' {
			continue
		}
		at, err := time.Parse(stampLayout, string(b[i:end]))
		if err == nil && !at.Before(began) && !at.After(time.Now()) {
			return i
		}
	}
	return len(b)
}

// broken is an end where none should be.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func isStamp(b []byte) bool {
	_, err := time.Parse(stampLayout, string(b))
	return len(b) == stampSize && err == nil
}
