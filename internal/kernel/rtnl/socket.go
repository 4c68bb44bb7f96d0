package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The exchange with the kernel is our own because an ADD makes about ten
// requests: the library's costs each a buffer of 64 KiB, two deadlines and a
// getsockname. What it builds and parses is still the library's.

// replySize holds any reply: the kernel fills at most 32 KiB of a dump at once,
// and a link with many virtual functions, the largest single reply, fits too.
const replySize = 64 << 10

// replies are buffers that no Conn uses at the moment.
var replies = sync.Pool{New: func() any { return new([replySize]byte) }}

// errInterrupted: things changed while the kernel listed them.
var errInterrupted = errors.New("dump interrupted")

// dial opens the socket in the calling thread's namespace. It blocks: the
// kernel answers a request before the call that sent it returns.
func dial() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, os.NewSyscallError("socket AF_NETLINK", err)
	}
	if err := setup(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setup asks for error texts, for errors without the request that caused them,
// and for strict dumps: the kernel then filters addresses and routes by link
// itself (Linux >= 4.20).
func setup(fd int) error {
	for _, opt := range []struct {
		number int
		name   string
	}{
		{unix.NETLINK_EXT_ACK, "NETLINK_EXT_ACK"},
		{unix.NETLINK_CAP_ACK, "NETLINK_CAP_ACK"},
		{unix.NETLINK_GET_STRICT_CHK, "NETLINK_GET_STRICT_CHK (Linux >= 4.20)"},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, opt.number, 1); err != nil {
			return fmt.Errorf("%s: %w", opt.name, err)
		}
	}
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// roundTrip sends a request and gives the replies of type reply. Every request
// has its own number, so what an earlier one left unread is passed over.
func (c *Conn) roundTrip(r *nl.NetlinkRequest, reply uint16) ([][]byte, error) {
	c.seq++
	r.Seq = c.seq
	if err := c.send(r); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	buf := replies.Get().(*[replySize]byte) //nolint:forcetypeassert // the pool has nothing else
	defer replies.Put(buf)
	x := exchange{seq: c.seq, reply: reply, acked: r.Flags&unix.NLM_F_ACK != 0}
	for !x.done {
		n, from, err := unix.Recvfrom(c.fd, buf[:], 0)
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
		return x.got, errInterrupted
	}
	return x.got, nil
}

// turns are how many requests may be under way at once, in all namespaces. The
// kernel serves one at a time under a lock of its own (RTNL): of fifty threads
// there the next ones spin, the others are replaced by the Go runtime, and both
// cost more than the requests. With one turn the kernel would be idle whenever
// whoever has it waits for a processor.
var turns = make(chan struct{}, 8)

// send has the kernel carry the request out. A deletion has no turn: it gives
// the kernel's lock back and then waits for a grace period.
func (c *Conn) send(r *nl.NetlinkRequest) error {
	data := r.Serialize()
	if r.Type != unix.RTM_DELLINK {
		turns <- struct{}{}
		defer func() { <-turns }()
	}
	return unix.Sendto(c.fd, data, 0, &c.kernel)
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
		b = b[min((size+3)&^3, len(b)):]
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
		_ = attrs(data, func(kind uint16, v []byte) {
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
