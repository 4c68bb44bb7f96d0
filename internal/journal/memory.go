package journal

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// bucket numbers the top-level buckets that hold rows.
type bucket int

const (
	records bucket = iota
	released
	attempts
	uplinks
	buckets
)

var bucketNames = [buckets][]byte{records: []byte("records"), released: []byte("released"), attempts: []byte("attempts"), uplinks: []byte("uplinks")}

const (
	maxAttempts = 1024
	// maxReleased bounds the memory of one subnet's released addresses. It is
	// a /16: with fewer addresses nothing is ever forgotten.
	maxReleased = 1 << 16
	// pruneSlack lets the bound be passed by so many before the oldest are
	// looked up and dropped all at once.
	pruneSlack = 1 << 10
)

// slot addresses one row.
type slot struct {
	bucket bucket
	key    string
}

func (s slot) compare(o slot) int {
	return cmp.Or(cmp.Compare(s.bucket, o.bucket), cmp.Compare(s.key, o.key))
}

// memory is all rows of the file and the indexes over them. Rows change after
// a commit only, but for Delivered and Fail: these are true whatever the disk
// does, so they apply at once and leave their slot in stale.
type memory struct {
	rows    [buckets]map[string]row
	indexes indexes
	// givenBy finds the row of an identity's last release; perSubnet lists the
	// same rows by subnet.
	givenBy   map[string]given
	perSubnet map[string]map[string]given
	whens     map[string]time.Time // of attempts
	// stale are slots whose value on disk may not be the one in memory: after
	// Delivered and Fail, and after a transaction that failed, because bbolt
	// cannot tell whether a failed flush of its meta page took effect. The
	// next transaction writes memory's value there.
	stale map[slot]struct{}
	whole bool // as the file said when it was opened
	// opened are the records as the file had them, decoded, until the first
	// reader takes them or one of them changes.
	opened  []core.Record
	decoded atomic.Int64 // records
}

func newMemory() *memory {
	m := &memory{
		indexes:   newIndexes(),
		givenBy:   map[string]given{},
		perSubnet: map[string]map[string]given{},
		whens:     map[string]time.Time{},
		stale:     map[slot]struct{}{},
	}
	for b := range m.rows {
		m.rows[b] = map[string]row{}
	}
	return m
}

func (m *memory) get(s slot) (row, bool) {
	r, ok := m.rows[s.bucket][s.key]
	return r, ok
}

// given is a released address on its way to the file, or the index entry of
// one that is there.
type given struct {
	id     string // who gave what: the newest of equal ids is kept
	subnet string
	seq    uint64
	row    row // empty in the index
}

func (g given) slot() slot { return slot{released, seqKey(g.seq)} }

// seqKey sorts as the numbers do, so that the bucket is in order of age and
// its oldest rows share pages.
func seqKey(seq uint64) string { return string(binary.BigEndian.AppendUint64(nil, seq)) }

func newGiven(r core.Released) (given, error) {
	data, err := encode(r)
	return given{id: identity(r), subnet: r.Subnet, seq: r.Seq, row: row{data: data}}, err
}

// identity tells releases of the same interface apart from others. A bare
// container has no name that comes back; its addresses stand for it, so that
// the order of reuse is remembered.
func identity(r core.Released) string {
	id := r.Subnet + "\x00" + r.Pod.Namespace + "\x00" + r.Pod.Name + "\x00" + r.IfName
	if r.Pod.IsZero() && len(r.IPs) > 0 {
		id += "\x00" + r.IPs[0].String()
	}
	return id
}

// load adds a row read from disk.
func (m *memory) load(s slot, r row) error {
	switch s.bucket {
	case records:
		rec, err := r.recordBy(decode)
		if err != nil {
			return err
		}
		r = r.of(&rec)
		m.opened = append(m.opened, rec)
		m.decoded.Add(1)
	case released:
		var rel core.Released
		if err := decode(r.data, &rel); err != nil {
			return err
		}
		m.indexGiven(given{id: identity(rel), subnet: rel.Subnet, seq: rel.Seq})
	case attempts:
		var a core.Attempt
		if err := decode(r.data, &a); err != nil {
			return err
		}
		m.whens[s.key] = a.When
	case uplinks:
		if err := decode(r.data, &core.Uplink{}); err != nil {
			return err
		}
	}
	m.put(s, &r)
	return nil
}

// set makes a row what a transaction made it; nil deletes.
func (m *memory) set(s slot, r *row) {
	if s.bucket == records {
		m.opened = nil
	}
	m.put(s, r)
}

func (m *memory) put(s slot, r *row) {
	if s.bucket == records {
		var after *Head
		if r != nil {
			after = r.head
		}
		if before := m.rows[records][s.key].head; before != after {
			m.indexes.move(s.key, before, after)
		}
	}
	if r == nil {
		delete(m.rows[s.bucket], s.key)
		return
	}
	m.rows[s.bucket][s.key] = *r
}

// indexGiven makes g the last release of its identity, without its data: the
// row is in rows already.
func (m *memory) indexGiven(g given) {
	g.row = row{}
	m.givenBy[g.id] = g
	if m.perSubnet[g.subnet] == nil {
		m.perSubnet[g.subnet] = map[string]given{}
	}
	m.perSubnet[g.subnet][g.id] = g
}

// dropGiven takes g out unless its identity has a newer release by now.
func (m *memory) dropGiven(g given) {
	if m.givenBy[g.id].seq == g.seq {
		delete(m.givenBy, g.id)
		delete(m.perSubnet[g.subnet], g.id)
	}
}

// surplus are the oldest releases of a subnet beyond the bound.
func (m *memory) surplus(subnet string) []given {
	all := m.perSubnet[subnet]
	if len(all) <= maxReleased+pruneSlack {
		return nil
	}
	list := make([]given, 0, len(all))
	for _, g := range all {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b given) int { return cmp.Compare(a.seq, b.seq) })
	return list[:len(list)-maxReleased]
}

// bucket are all rows of b, in no order.
func (m *memory) bucket(b bucket) []row {
	return slices.Collect(maps.Values(m.rows[b]))
}

// deliver sets the flag; false when there is nothing to write.
func (m *memory) deliver(key string) bool {
	s := slot{records, key}
	r, ok := m.get(s)
	if !ok || r.flags&flagDelivered != 0 {
		return false
	}
	r.flags |= flagDelivered
	m.set(s, &r)
	m.stale[s] = struct{}{}
	return true
}

// fail keeps a pod's attempt and lets the oldest of all go beyond the bound.
func (m *memory) fail(pod string, r row, when time.Time) {
	s := slot{attempts, pod}
	m.set(s, &r)
	m.whens[pod] = when
	m.stale[s] = struct{}{}
	if len(m.whens) <= maxAttempts {
		return
	}
	oldest := pod
	for p, w := range m.whens {
		if w.Before(m.whens[oldest]) {
			oldest = p
		}
	}
	delete(m.whens, oldest)
	m.set(slot{attempts, oldest}, nil)
	m.stale[slot{attempts, oldest}] = struct{}{}
}
