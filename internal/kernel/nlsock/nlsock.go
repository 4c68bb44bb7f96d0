// Package nlsock asks the kernel over netlink, of any protocol.
package nlsock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The exchange with the kernel is our own because an ADD makes about ten
// requests, and an idle node asks for its ipsets twice a second: one library's costs each
// a buffer of 64 KiB, two deadlines and a getsockname, the other's each reply two system
// calls and a goroutine for each of them. Requests are still built by a library.

// replySize holds any reply: the kernel fills at most 32 KiB of a dump at once,
// and a link with many virtual functions, the largest single reply, fits too.
const replySize = 64 << 10

// replies are buffers that no Socket uses at the moment.
var replies = sync.Pool{New: func() any { return new([replySize]byte) }}

// ErrInterrupted is that things changed while the kernel listed them.
var ErrInterrupted = errors.New("dump interrupted")

// Socket is a netlink socket of the namespace in which it was opened. It blocks: the
// kernel answers a request before the call that sent it returns. One request at a
// time goes through it.
type Socket struct {
	fd  int
	seq uint32 // of the last request
	// kernel is where requests go. Each Socket has its own: package unix writes
	// the raw address into the value with each use.
	kernel unix.SockaddrNetlink
}

// Option is one of SOL_NETLINK.
type Option struct {
	number int
	name   string
}

// Strict has dumps filtered by what their request says, as by a link.
var Strict = Option{unix.NETLINK_GET_STRICT_CHK, "NETLINK_GET_STRICT_CHK (Linux >= 4.20)"}

// always are error texts, and errors without the request that caused them.
var always = []Option{{unix.NETLINK_EXT_ACK, "NETLINK_EXT_ACK"}, {unix.NETLINK_CAP_ACK, "NETLINK_CAP_ACK"}}

// Open opens a socket of a protocol (NETLINK_ROUTE and the like) in the calling thread's
// namespace.
func Open(protocol int, options ...Option) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket AF_NETLINK", err)
	}
	if err := setup(fd, slices.Concat(always, options)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &Socket{fd: fd, kernel: unix.SockaddrNetlink{Family: unix.AF_NETLINK}}, nil
}

func setup(fd int, options []Option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, o.number, 1); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// Close closes the socket.
func (s *Socket) Close() error {
	fd := s.fd
	s.fd = -1 // the number may be somebody else's at once
	return os.NewSyscallError("close", unix.Close(fd))
}

// Ask is Send and Receive.
func (s *Socket) Ask(r *nl.NetlinkRequest, reply uint16) ([][]byte, error) {
	if err := s.Send(r); err != nil {
		return nil, err
	}
	return s.Receive(r, reply)
}

// Send numbers a request and has the kernel carry it out. Every request has its own number,
// so what an earlier one left unread is passed over.
func (s *Socket) Send(r *nl.NetlinkRequest) error {
	s.seq++
	r.Seq = s.seq
	return os.NewSyscallError("sendto", unix.Sendto(s.fd, r.Serialize(), 0, &s.kernel))
}

// Receive gives the replies of type reply to the request that was sent last, and
// ErrInterrupted beside those of a dump that may lack some.
func (s *Socket) Receive(r *nl.NetlinkRequest, reply uint16) ([][]byte, error) {
	buf := replies.Get().(*[replySize]byte) //nolint:forcetypeassert // the pool has nothing else
	defer replies.Put(buf)
	x := exchange{seq: s.seq, reply: reply, acked: r.Flags&unix.NLM_F_ACK != 0}
	for !x.done {
		n, from, err := unix.Recvfrom(s.fd, buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // another process may write to a netlink socket
		}
		if err := x.take(buf[:n]); err != nil {
			return nil, err
		}
	}
	if x.interrupted {
		return x.got, ErrInterrupted
	}
	return x.got, nil
}

// exchange collects the answer to one request.
type exchange struct {
	seq         uint32
	reply       uint16
	acked       bool // an acknowledgement ends it, not the first reply
	got         [][]byte
	interrupted bool
	done        bool
}

// take reads one datagram, which may have several messages.
func (x *exchange) take(b []byte) error {
	for len(b) >= unix.SizeofNlMsghdr && !x.done {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return errors.New("truncated netlink reply")
		}
		if binary.NativeEndian.Uint32(b[8:]) == x.seq {
			kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
			if err := x.message(kind, flags, b[unix.SizeofNlMsghdr:size]); err != nil {
				return err
			}
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

func (x *exchange) message(kind, flags uint16, data []byte) error {
	x.interrupted = x.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
	switch kind {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		x.done = true
		return outcome(kind, flags, data)
	case x.reply:
		x.got = append(x.got, bytes.Clone(data)) // the buffer is used again
	}
	x.done = flags&unix.NLM_F_MULTI == 0 && !x.acked
	return nil
}

// outcome reads an acknowledgement, or the end of a dump: nil, or the error
// number with what the kernel says about it.
func outcome(kind, flags uint16, data []byte) error {
	if len(data) < 4 {
		return nil // the end of a dump need not say that all went well
	}
	errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(data)))
	if errno == 0 {
		return nil
	}
	var text string
	if data = data[4:]; kind == unix.NLMSG_ERROR {
		data = data[min(unix.SizeofNlMsghdr, len(data)):] // of the request, see NETLINK_CAP_ACK
	}
	if flags&unix.NLM_F_ACK_TLVS != 0 {
		// Without text the number says enough.
		_ = Attrs(data, func(kind uint16, v []byte) {
			if kind == nl.NLMSGERR_ATTR_MSG {
				text = unix.ByteSliceToString(v)
			}
		})
	}
	if text == "" {
		return errno
	}
	return fmt.Errorf("%w: %s", errno, text)
}

// Attrs calls fn for each attribute of b, whose kind is without the flags of nesting and of
// byte order, up to one that is cut off.
func Attrs(b []byte, fn func(kind uint16, v []byte)) error {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return errors.New("parse reply: truncated attribute")
		}
		fn(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:size])
		b = b[min(align(size), len(b)):]
	}
	return nil
}

// align is where what follows n bytes begins.
func align(n int) int { return (n + 3) &^ 3 }
