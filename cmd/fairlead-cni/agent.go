package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/api/cni"
)

var (
	errTooLarge = errors.New("too large")
	errTimeout  = errors.New("no answer in time")
	errClosed   = errors.New("the connection was closed before the answer")
	errGarbage  = errors.New("what answers on the socket is no Fairlead agent")
)

const (
	maxHead   = 16 << 10
	maxAnswer = 2 * cni.MaxBody // Output is base64 in JSON
)

// conn is a connection to the agent. The process ends with the call, so it is
// never closed by hand.
//
// It waits by the runtime's poller: a thread that blocks in a system call is
// watched by the runtime every 20 us for the first milliseconds, which costs
// more than all the rest of the call.
type conn struct {
	file *os.File
	buf  []byte // read and not used yet
}

// dial connects; what takes longer than the deadline is no agent.
func dial(path string, deadline time.Time) (*conn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// A non-blocking connect would not wait where many others do.
	tv := syscall.NsecToTimeval(int64(max(time.Until(deadline), time.Millisecond)))
	// it can fail only for a bad descriptor, and then so does everything else
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv)
	for {
		err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil && !errors.Is(err, syscall.EISCONN) {
			return nil, err
		}
		if err := syscall.SetNonblock(fd, true); err != nil {
			return nil, err
		}
		c := &conn{file: os.NewFile(uintptr(fd), path)}
		c.writeLimit(deadline)
		return c, nil
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
	prompt := time.Now().Add(cni.AcceptLimit)
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
	if err := c.file.SetReadDeadline(deadline); err != nil {
		return err
	}
	var chunk [8 << 10]byte
	n, err := c.file.Read(chunk[:])
	c.buf = append(c.buf, chunk[:n]...)
	if errors.Is(err, io.EOF) {
		return errClosed
	}
	return inTime(err)
}

// writeLimit bounds what is written from now on. It can fail only for a bad
// descriptor, and then so does the write.
func (c *conn) writeLimit(deadline time.Time) { _ = c.file.SetWriteDeadline(deadline) }

func (c *conn) write(data []byte) error {
	_, err := c.file.Write(data)
	return inTime(err)
}

// inTime gives a deadline that has passed its name.
func inTime(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errTimeout
	}
	return err
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
