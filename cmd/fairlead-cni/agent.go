package main

import (
	"bytes"
	"errors"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/api/cni"
)

var (
	errTooLarge = errors.New("too large")
	errTimeout  = errors.New("no answer in time")
	errClosed   = errors.New("the connection was closed before the answer")
	errGarbage  = errors.New("the answer is not one of an agent")
)

const (
	maxHead   = 16 << 10
	maxAnswer = 2 * cni.MaxBody // Output is base64 in JSON
)

// conn is a connection to the agent. The process ends with the call, so it is
// never closed by hand.
type conn struct {
	fd  int
	buf []byte // read and not used yet
}

// dial connects; what takes longer than the deadline is no agent.
func dial(path string, deadline time.Time) (*conn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c := &conn{fd: fd}
	c.writeLimit(deadline)
	for {
		err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		switch {
		case err == nil || errors.Is(err, syscall.EISCONN):
			return c, nil
		case !errors.Is(err, syscall.EINTR):
			return nil, err
		}
	}
}

// refusal is an HTTP status other than 200: an agent is there and says no.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return "HTTP status " + number(r.status) }

func (r *refusal) failure() *failure {
	code := codeIO
	if r.status == 429 || r.status == 503 { // its limits are reached, or it stops
		code = codeTryAgain
	}
	return &failure{code, "the agent refused the call (" + r.Error() + ")", r.text}
}

// exchange sends the request in two halves and reads the answer: without a
// prompt `100 Continue` no agent has the call.
func (c *conn) exchange(path string, body []byte, deadline time.Time) (cni.Response, error) {
	prompt := time.Now().Add(continueLimit)
	head := "POST " + path + " HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: " +
		number(len(body)) + "\r\nExpect: 100-continue\r\n\r\n"
	if err := c.write([]byte(head)); err != nil {
		return cni.Response{}, err
	}
	status, length, err := c.head(prompt)
	if err != nil {
		return cni.Response{}, err
	}
	if status == 100 {
		c.writeLimit(deadline)
		if err := c.write(body); err != nil {
			return cni.Response{}, err
		}
		if status, length, err = c.head(deadline); err != nil {
			return cni.Response{}, err
		}
	}
	return c.answer(status, length, deadline)
}

func (c *conn) answer(status, length int, deadline time.Time) (cni.Response, error) {
	if length < 0 || length > maxAnswer {
		return cni.Response{}, errGarbage
	}
	for len(c.buf) < length {
		if err := c.more(deadline); err != nil {
			return cni.Response{}, err
		}
	}
	if status != 200 {
		return cni.Response{}, &refusal{status, string(bytes.TrimSpace(c.buf[:length]))}
	}
	resp, ok := decodeResponse(c.buf[:length])
	if !ok {
		return cni.Response{}, errGarbage
	}
	return resp, nil
}

// acknowledge tells the agent that the answer was printed. Nobody can be told
// when that fails: the agent then undoes the ADD at the next one.
func (c *conn) acknowledge() { _ = c.write([]byte{cni.Ack}) }

// head reads one response head: its status and Content-Length, -1 for none.
func (c *conn) head(deadline time.Time) (status, length int, err error) {
	end := -1
	for end < 0 {
		if end = bytes.Index(c.buf, []byte("\r\n\r\n")); end >= 0 {
			break
		}
		if len(c.buf) > maxHead {
			return 0, 0, errGarbage
		}
		if err := c.more(deadline); err != nil {
			return 0, 0, err
		}
	}
	lines := bytes.Split(c.buf[:end], []byte("\r\n"))
	c.buf = c.buf[end+4:]
	status, ok := statusOf(lines[0])
	if !ok {
		return 0, 0, errGarbage
	}
	return status, lengthOf(lines[1:]), nil
}

// statusOf reads "HTTP/1.1 200 OK".
func statusOf(line []byte) (int, bool) {
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' {
		return 0, false
	}
	n, err := strconv.Atoi(string(line[9:12]))
	return n, err == nil && n >= 100
}

func lengthOf(lines [][]byte) int {
	for _, l := range lines {
		key, value, _ := bytes.Cut(l, []byte(":"))
		if bytes.EqualFold(bytes.TrimSpace(key), []byte("Content-Length")) {
			if n, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil {
				return n
			}
		}
	}
	return -1
}

// more reads once into the buffer.
func (c *conn) more(deadline time.Time) error {
	var chunk [8 << 10]byte
	n, err := read(c.fd, chunk[:], deadline)
	if err == nil && n == 0 {
		err = errClosed
	}
	c.buf = append(c.buf, chunk[:n]...)
	return err
}

// writeLimit bounds what follows on the writing side, connect included.
func (c *conn) writeLimit(deadline time.Time) {
	left := max(time.Until(deadline), time.Millisecond)
	tv := syscall.NsecToTimeval(int64(left))
	// it can fail only for a bad descriptor, and then so does everything else
	_ = syscall.SetsockoptTimeval(c.fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv)
}

func (c *conn) write(data []byte) error {
	for len(data) > 0 {
		n, err := syscall.Write(c.fd, data)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return errTimeout
		case err != nil:
			return err
		default:
			data = data[n:]
		}
	}
	return nil
}

// output writes on a descriptor of the runtime's, which may be non-blocking,
// and tells success.
func output(fd int, data []byte, deadline time.Time) bool {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		if err == nil {
			data = data[n:]
			continue
		}
		if errors.Is(err, syscall.EAGAIN) {
			err = await(fd, true, deadline)
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return false
		}
	}
	return true
}

// read waits for data until the deadline; 0 bytes is the end of the stream.
func read(fd int, into []byte, deadline time.Time) (int, error) {
	for {
		err := await(fd, false, deadline)
		if err != nil {
			return 0, err
		}
		n, err := syscall.Read(fd, into)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EAGAIN) {
			return 0, err
		}
	}
}

// await blocks until fd is ready or the deadline has come.
func await(fd int, writing bool, deadline time.Time) error {
	const word = strconv.IntSize // bits in one element of a set
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return errTimeout
		}
		tv := syscall.NsecToTimeval(int64(left))
		var set syscall.FdSet
		set.Bits[fd/word] |= 1 << (fd % word)
		readers, writers := &set, (*syscall.FdSet)(nil)
		if writing {
			readers, writers = writers, readers
		}
		n, err := syscall.Select(fd+1, readers, writers, nil, &tv)
		if n > 0 && err == nil {
			return nil
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// readAll reads a stream of at most limit bytes; with errTooLarge it gives what
// it has.
func readAll(fd, limit int, deadline time.Time) ([]byte, error) {
	buf := make([]byte, 0, 4<<10)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := read(fd, buf[len(buf):cap(buf)], deadline)
		if buf = buf[:len(buf)+n]; err != nil || n == 0 {
			return buf, err
		}
		if len(buf) > limit {
			return buf[:limit], errTooLarge
		}
	}
}
