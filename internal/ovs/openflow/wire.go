package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// version is OpenFlow 1.4, the first with bundles.
const version = 5

// Types of messages (OpenFlow 1.4, 7.1).
const (
	typeHello     uint8 = 0
	typeError     uint8 = 1
	typeEcho      uint8 = 2
	typeEchoReply uint8 = 3
	typeFlowMod   uint8 = 14
	typeStats     uint8 = 18
	typeStatsInfo uint8 = 19
	typeBundle    uint8 = 33
	typeBundleAdd uint8 = 34
)

const (
	headerLen = 8

	bundleOpen   uint16 = 0
	bundleCommit uint16 = 4
	bundleDone   uint16 = 5 // the answer to bundleCommit
	bundleFlags  uint16 = 3 // atomic, ordered

	statsFlow uint16 = 1
	statsMore uint16 = 1 // another answer follows

	cmdAdd    uint8 = 0
	cmdDelete uint8 = 3

	anyPort      uint32 = 0xffff_ffff // any group and no buffer likewise
	portNormal   uint32 = 0xffff_fffa
	allTables    uint8  = 0xff
	matchOXM     uint16 = 1
	applyActions uint16 = 4
	lenApply     uint16 = 24
	lenOutput    uint16 = 16
)

// message is one message without its length.
type message struct {
	version uint8 // of what was read; what is written has ours
	kind    uint8
	xid     uint32
	body    []byte
}

func (m message) bytes() []byte {
	b := []byte{version, m.kind}
	b = binary.BigEndian.AppendUint16(b, uint16(headerLen+len(m.body))) //nolint:gosec // our own are far below 64 KiB
	b = binary.BigEndian.AppendUint32(b, m.xid)
	return append(b, m.body...)
}

func readMessage(r io.Reader) (message, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	n := int(binary.BigEndian.Uint16(head[2:]))
	if n < headerLen {
		return message{}, fmt.Errorf("a message of %d bytes", n)
	}
	m := message{version: head[0], kind: head[1], xid: binary.BigEndian.Uint32(head[4:]), body: make([]byte, n-headerLen)}
	_, err := io.ReadFull(r, m.body)
	return m, err
}

// appendMatch adds a match with its padding.
func appendMatch(b []byte, m Match) []byte {
	b = binary.BigEndian.AppendUint16(b, matchOXM)
	b = binary.BigEndian.AppendUint16(b, uint16(tlvHeader+len(m))) //nolint:gosec // a handful of fields
	b = append(b, m...)
	return append(b, make([]byte, padding(tlvHeader+len(m)))...)
}

// padding fills n up to a multiple of 8.
func padding(n int) int { return -n & 7 }

// flowMod is the body of a change of the flows with a cookie; for cmdDelete of all of
// them.
func flowMod(command uint8, cookie uint64, f Flow) []byte {
	b := binary.BigEndian.AppendUint64(nil, cookie)
	table := uint8(0)
	if command == cmdDelete {
		b, table = binary.BigEndian.AppendUint64(b, ^uint64(0)), allTables
	} else {
		b = binary.BigEndian.AppendUint64(b, 0)
	}
	b = append(b, table, command, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, f.Priority)
	for range 3 { // buffer, port, group
		b = binary.BigEndian.AppendUint32(b, anyPort)
	}
	b = append(b, 0, 0, 0, 0) // flags, importance
	b = appendMatch(b, f.Match)
	if command == cmdAdd && f.Forward {
		b = append(b, forward...)
	}
	return b
}

// forward is the instruction to send a packet as a learning switch does.
var forward = func() []byte {
	b := binary.BigEndian.AppendUint16(nil, applyActions)
	b = binary.BigEndian.AppendUint16(b, lenApply)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, 0) // action OUTPUT
	b = binary.BigEndian.AppendUint16(b, lenOutput)
	b = binary.BigEndian.AppendUint32(b, portNormal)
	return append(b, make([]byte, 8)...) // max_len, which only the controller's port reads
}()

// bundle are the messages that put flows in the place of those with the cookie, as
// one change. Their numbers begin at first.
func bundle(first uint32, cookie uint64, flows []Flow) []message {
	control := func(kind uint16) []byte {
		b := binary.BigEndian.AppendUint32(nil, first)
		b = binary.BigEndian.AppendUint16(b, kind)
		return binary.BigEndian.AppendUint16(b, bundleFlags)
	}
	out := []message{{kind: typeBundle, xid: first, body: control(bundleOpen)}}
	add := func(body []byte) {
		xid := first + uint32(len(out)) //nolint:gosec // some dozens
		b := binary.BigEndian.AppendUint32(nil, first)
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, bundleFlags)
		out = append(out, message{kind: typeBundleAdd, xid: xid, body: append(b, message{kind: typeFlowMod, xid: xid, body: body}.bytes()...)})
	}
	add(flowMod(cmdDelete, cookie, Flow{}))
	for _, f := range flows {
		add(flowMod(cmdAdd, cookie, f))
	}
	return append(out, message{kind: typeBundle, xid: first + uint32(len(out)), body: control(bundleCommit)}) //nolint:gosec // as above
}

// question is the body of a request for the flows whose cookie has these bits.
func question(cookie, mask uint64) []byte {
	b := binary.BigEndian.AppendUint16(nil, statsFlow)
	b = append(b, make([]byte, 6)...)
	b = append(b, 0, 0, 0, 0) // the first table
	b = binary.BigEndian.AppendUint32(b, anyPort)
	b = binary.BigEndian.AppendUint32(b, anyPort)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, cookie)
	b = binary.BigEndian.AppendUint64(b, mask)
	return appendMatch(b, "")
}

var errShort = errors.New("a message is shorter than it says")

// Lengths within an answer, in bytes.
const (
	statsHeader = 8
	flowFixed   = 48 // of a flow, before its match
)

// answer reads the flows of a message into out, by cookie, and tells whether another
// message follows.
func answer(body []byte, out map[uint64][]Flow) (more bool, err error) {
	if len(body) < statsHeader || binary.BigEndian.Uint16(body) != statsFlow {
		return false, errShort
	}
	more = binary.BigEndian.Uint16(body[2:])&statsMore != 0
	for b := body[statsHeader:]; len(b) > 0; {
		n := 0
		if len(b) >= flowFixed+tlvHeader {
			n = int(binary.BigEndian.Uint16(b))
		}
		if n < flowFixed+tlvHeader || n > len(b) {
			return false, errShort
		}
		cookie := binary.BigEndian.Uint64(b[24:])
		f, err := parseFlow(b[:n])
		if err != nil {
			return false, err
		}
		out[cookie] = append(out[cookie], f)
		b = b[n:]
	}
	return more, nil
}

// parseFlow reads one flow. What a Flow cannot say makes it unlike any Flow.
func parseFlow(b []byte) (Flow, error) {
	f := Flow{Priority: binary.BigEndian.Uint16(b[12:])}
	n := int(binary.BigEndian.Uint16(b[flowFixed+2:]))
	end := flowFixed + n + padding(n)
	if n < tlvHeader || end > len(b) {
		return f, errShort
	}
	f.Match = matchOf(Match(b[flowFixed+tlvHeader : flowFixed+n]).fields()...)
	switch rest := b[end:]; {
	case len(rest) == 0:
	case isForward(rest):
		f.Forward = true
	default:
		f.Match += foreign
	}
	return f, nil
}

// isForward compares all but max_len, about which switches say what they like.
func isForward(b []byte) bool {
	n := len(forward) - 8
	return len(b) == len(forward) && slices.Equal(b[:n], forward[:n])
}

// foreign ends the Match of a flow with other actions; no field is so short.
const foreign = "?"
