package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/fairlead/fairlead/internal/core"
)

// A value on disk is
//
//	checksum  4 bytes, big-endian CRC-32C of key, flags and JSON
//	flags     1 byte
//	JSON      one core value
//
// bbolt protects only its two meta pages by checksums; a value that rots in
// place may still be good JSON with another address in it. A checksum of our
// own costs less than a microsecond, and since it covers the key a value that
// ends up under another key is found too.
const headerLen = 5

// flagDelivered stands in the header and not in the JSON, so that Delivered
// need not decode and encode the record again.
const flagDelivered byte = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errChecksum = errors.New("checksum does not match")
	errTrailing = errors.New("more than one JSON value")
)

// row is a value in memory: immutable data, and flags.
type row struct {
	data  []byte // JSON
	flags byte
	head  *Head // of a record; immutable, without Delivered
}

// of notes what can be said of rec without decoding it.
func (r row) of(rec *core.Record) row {
	r.head = headOf(rec)
	return r
}

// newRow is encoded JSON with its flag.
func newRow(data []byte, delivered bool) row {
	r := row{data: data}
	if delivered {
		r.flags |= flagDelivered
	}
	return r
}

// record decodes a row of the records bucket, which Open has proven or we have
// encoded: it need not be strict again.
func (r row) record() (core.Record, error) { return r.recordBy(json.Unmarshal) }

func (r row) recordBy(decode func([]byte, any) error) (core.Record, error) {
	var rec core.Record
	if err := decode(r.data, &rec); err != nil {
		return core.Record{}, err
	}
	rec.Delivered = r.flags&flagDelivered != 0
	return rec, nil
}

// sum covers the key and all that follows the checksum itself.
func sum(key string, rest []byte) uint32 {
	c := crc32.Update(0, castagnoli, []byte(key))
	return crc32.Update(c, castagnoli, rest)
}

// seal is the row as it stands on disk.
func (r row) seal(key string) []byte {
	v := make([]byte, headerLen, headerLen+len(r.data))
	v[4] = r.flags
	v = append(v, r.data...)
	binary.BigEndian.PutUint32(v, sum(key, v[4:]))
	return v
}

// unseal checks a value on disk and copies it out of bbolt's memory.
func unseal(key string, v []byte) (row, error) {
	if len(v) < headerLen {
		return row{}, fmt.Errorf("value of %q: %d bytes are less than a header", key, len(v))
	}
	if binary.BigEndian.Uint32(v) != sum(key, v[4:]) {
		return row{}, fmt.Errorf("value of %q: %w", key, errChecksum)
	}
	return row{data: bytes.Clone(v[headerLen:]), flags: v[4]}, nil
}

// encode gives what cannot be JSON (a time of year 30,000, broken raw JSON from
// a plugin) code 102, since the value came with a request.
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, core.WithCode(core.CodeValue, "value cannot be recorded", err)
	}
	return data, nil
}

// encodeRecord refuses what decode would refuse later, when it would make the
// whole file unreadable: a key without both parts, a MAC of odd length.
func encodeRecord(r core.Record) ([]byte, error) {
	if k, ok := core.ParseKey(r.Key.String()); !ok || k != r.Key {
		return nil, core.Errorf(core.CodeValue, "key %q is not <container>/<ifname>", r.Key.String())
	}
	for _, m := range macs(r) {
		if len(m) != 0 && len(m) != 6 {
			return nil, core.Errorf(core.CodeValue, "MAC of %d bytes", len(m))
		}
	}
	r.Delivered = false // a flag of the row
	return encode(r)
}

// macs are all hardware addresses of a record. MAC marshals whatever it holds,
// and reads back only what net.ParseMAC knows.
func macs(r core.Record) []core.MAC {
	out := make([]core.MAC, 0, len(r.Specs)+len(r.Links)+len(r.Leases))
	for i := range r.Specs {
		if n := r.Specs[i].Given(); n != nil {
			out = append(out, n.MAC)
		}
	}
	for i := range r.Links {
		out = append(out, r.Links[i].MAC)
	}
	for i := range r.Leases {
		out = append(out, r.Leases[i].MAC)
	}
	return out
}

// decode is strict: a field that this schema does not know, or anything after
// the value, means that somebody else wrote it.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}
