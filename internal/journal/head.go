package journal

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// Head is what is known of a record without decoding it: enough to choose those
// that concern somebody. Of a node's records a start, a GC and the audits that
// look for unfinished work want to read few or none.
type Head struct {
	Key       core.Key
	Network   string
	Pod       core.Pod
	Netns     core.Netns
	Phase     core.Phase
	Called    core.Moment // of the ADD
	Delivered bool
	Orphan    bool
	Parts     int  // networks that come or go
	HasCall   bool // it has an AddCall
	// Statuses are the journal's own: not to be written to.
	Statuses []core.Net
}

func headOf(r *core.Record) *Head {
	return &Head{
		Key: r.Key, Network: r.Network, Pod: r.Pod, Netns: r.Netns, Phase: r.Phase, Called: r.Called(),
		Orphan: r.Orphan, Parts: len(r.Parts), HasCall: r.AddCall != nil,
		Statuses: slices.Clone(r.Statuses),
	}
}

// full is the row's head with the flag that the row keeps.
func (r row) full() Head {
	h := *r.head
	h.Delivered = r.flags&flagDelivered != 0
	return h
}

// index finds records by something in their heads.
type index[K comparable] map[K][]string

func (x index[K]) add(k K, key string) {
	if !slices.Contains(x[k], key) {
		x[k] = append(x[k], key)
	}
}

func (x index[K]) drop(k K, key string) {
	left := slices.DeleteFunc(x[k], func(have string) bool { return have == key })
	if x[k] = left; len(left) == 0 {
		delete(x, k)
	}
}

// indexes are those over the records.
type indexes struct {
	containers index[string]
	pods       index[string] // without bare containers, which are no pod's
	spaces     index[space]
}

// space is a network namespace, whatever the path to it.
type space struct {
	cookie uint64
	boot   string
}

func newIndexes() indexes {
	return indexes{containers: index[string]{}, pods: index[string]{}, spaces: index[space]{}}
}

// move makes the indexes say of the record at key what its new head says; nil
// is none.
func (x indexes) move(key string, before, after *Head) {
	if before != nil {
		x.containers.drop(before.Key.Container, key)
		x.pods.drop(before.Pod.String(), key)
		x.spaces.drop(spaceOf(before.Netns), key)
	}
	if after == nil {
		return
	}
	x.containers.add(after.Key.Container, key)
	if !after.Pod.IsZero() {
		x.pods.add(after.Pod.String(), key)
	}
	if after.Netns.Cookie != 0 {
		x.spaces.add(spaceOf(after.Netns), key)
	}
}

func spaceOf(n core.Netns) space { return space{n.Cookie, n.BootID} }

// Heads are those of all records, by key. They cost next to nothing.
func (j *Journal) Heads() []Head {
	j.mu.RLock()
	defer j.mu.RUnlock()
	out := make([]Head, 0, len(j.mem.rows[records]))
	for _, r := range j.mem.rows[records] {
		out = append(out, r.full())
	}
	return sorted(out)
}

// Head is that of one record.
func (j *Journal) Head(k core.Key) (Head, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	r, ok := j.mem.get(slot{records, k.String()})
	if !ok {
		return Head{}, false
	}
	return r.full(), true
}

// PodHeads are the heads of a pod's records, by key; its UID does not count. A
// bare container's are no pod's.
func (j *Journal) PodHeads(p core.Pod) []Head {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return sorted(j.mem.heads(j.mem.indexes.pods[p.String()]))
}

// NetnsHeads are the heads of the records whose namespace is n, whatever the
// path to it; none where its cookie is not known.
func (j *Journal) NetnsHeads(n core.Netns) []Head {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return sorted(j.mem.heads(j.mem.indexes.spaces[spaceOf(n)]))
}

func sorted(heads []Head) []Head {
	slices.SortFunc(heads, func(a, b Head) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return heads
}

func (m *memory) heads(keys []string) []Head {
	out := make([]Head, 0, len(keys))
	for _, k := range keys {
		out = append(out, m.rows[records][k].full())
	}
	return out
}

// some are the records' rows at keys.
func (m *memory) some(keys []string) []row {
	out := make([]row, 0, len(keys))
	for _, k := range keys {
		out = append(out, m.rows[records][k])
	}
	return out
}
