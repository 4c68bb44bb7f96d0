package nlsock

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const mine = 7 // number of the request whose answer is read

// packet is one netlink message, padded.
func packet(kind, flags uint16, seq uint32, data []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(binary.NativeEndian.AppendUint32(b, 0), data...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func ack(seq uint32) []byte {
	return packet(unix.NLMSG_ERROR, unix.NLM_F_CAPPED, seq, make([]byte, 4+unix.SizeofNlMsghdr))
}

// refusal is errno 17 (EEXIST) with a text.
func refusal(seq uint32, text string) []byte {
	errno := int32(-17)
	data := binary.NativeEndian.AppendUint32(nil, uint32(errno))
	data = append(data, make([]byte, unix.SizeofNlMsghdr)...)
	data = append(data, nl.NewRtAttr(nl.NLMSGERR_ATTR_MSG, nl.ZeroTerminated(text)).Serialize()...)
	return packet(unix.NLMSG_ERROR, unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS, seq, data)
}

func TestAnswers(t *testing.T) {
	const link = unix.RTM_NEWLINK
	multi := uint16(unix.NLM_F_MULTI)
	for name, c := range map[string]struct {
		acked  bool
		grams  [][]byte
		got    []string
		failed string
	}{
		"one reply": {grams: [][]byte{packet(link, 0, mine, []byte("abc"))}, got: []string{"abc"}},
		"an echo and its acknowledgement": {acked: true, got: []string{"echo"},
			grams: [][]byte{packet(link, 0, mine, []byte("echo")), ack(mine)}},
		"a kernel that does not echo": {acked: true, grams: [][]byte{ack(mine)}},
		"what an earlier request left": {acked: true,
			grams: [][]byte{packet(link, 0, mine-1, []byte("old")), refusal(mine-1, "old"), ack(mine)}},
		"a refusal": {acked: true, grams: [][]byte{refusal(mine, "no room")}, failed: "file exists: no room"},
		"a dump in two datagrams": {got: []string{"a", "b", "c"}, grams: [][]byte{
			append(packet(link, multi, mine, []byte("a")), packet(link, multi, mine, []byte("b"))...),
			append(packet(link, multi, mine, []byte("c")), packet(unix.NLMSG_DONE, multi, mine, make([]byte, 4))...)}},
		"an end of a dump without number": {grams: [][]byte{packet(unix.NLMSG_DONE, multi, mine, nil)}},
		"cut off":                         {grams: [][]byte{packet(link, 0, mine, []byte("abcdef"))[:20]}, failed: "truncated netlink reply"},
	} {
		t.Run(name, func(t *testing.T) {
			x := exchange{seq: mine, reply: link, acked: c.acked}
			var err error
			for _, g := range c.grams {
				require.False(t, x.done)
				if err = x.take(g); err != nil {
					break
				}
			}
			if c.failed != "" {
				require.EqualError(t, err, c.failed)
				return
			}
			require.NoError(t, err)
			require.True(t, x.done)
			var got []string
			for _, b := range x.got {
				got = append(got, string(b))
			}
			require.Equal(t, c.got, got)
		})
	}
}

// TestGarbageIsNoPanic: whatever arrives, the reader of datagrams comes back.
func TestGarbageIsNoPanic(t *testing.T) {
	whole := append(refusal(mine, "text"), packet(unix.RTM_NEWLINK, 0, mine, []byte("x"))...)
	for n := range whole {
		for _, flip := range []byte{1, 0x80, 0xff} {
			b := append([]byte{}, whole...)
			b[n] ^= flip
			for cut := range b {
				_ = (&exchange{seq: mine}).take(b[:cut])
			}
		}
	}
}

func TestAttrs(t *testing.T) {
	b := nl.NewRtAttr(1|unix.NLA_F_NESTED, nl.NewRtAttr(2|unix.NLA_F_NET_BYTEORDER, []byte("abcde")).Serialize()).Serialize()
	b = append(b, nl.NewRtAttr(3, nil).Serialize()...)
	read := func(b []byte) (got []string, err error) {
		err = Attrs(b, func(kind uint16, v []byte) {
			got = append(got, fmt.Sprint(kind))
			if kind == 1 {
				require.NoError(t, Attrs(v, func(kind uint16, v []byte) { got = append(got, fmt.Sprint(kind, string(v))) }))
			}
		})
		return got, err
	}
	got, err := read(b)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2abcde", "3"}, got)
	got, err = read(append(b, 9, 0, 4, 0, 'x'))
	require.EqualError(t, err, "parse reply: truncated attribute")
	require.Equal(t, []string{"1", "2abcde", "3"}, got)
}
