package ipam

import "container/heap"

// aged is a set whose members have an age: the one with the lowest sequence
// number is the oldest. Adding, removing and finding the oldest cost O(log n):
// a removed member stays in the heap until it comes up, or until such members
// are the majority.
type aged[K comparable] struct {
	seq  map[K]uint64
	heap ageHeap[K]
}

func newAged[K comparable]() *aged[K] { return &aged[K]{seq: map[K]uint64{}} }

func (a *aged[K]) len() int { return len(a.seq) }

// put adds k, or gives it a new age.
func (a *aged[K]) put(k K, seq uint64) {
	a.seq[k] = seq
	heap.Push(&a.heap, age[K]{k, seq})
	if len(a.heap) > 2*len(a.seq)+64 {
		a.compact()
	}
}

// drop removes k and tells its age.
func (a *aged[K]) drop(k K) (uint64, bool) {
	seq, ok := a.seq[k]
	delete(a.seq, k)
	return seq, ok
}

// oldest finds the oldest member that is wanted. Members that are not are
// parked: they keep their age and are looked at again after a compact.
func (a *aged[K]) oldest(wanted func(K) bool) (K, bool) {
	for len(a.heap) > 0 {
		top := a.heap[0]
		if seq, ok := a.seq[top.key]; ok && seq == top.seq && wanted(top.key) {
			return top.key, true
		}
		heap.Pop(&a.heap)
	}
	var none K
	return none, false
}

// shed removes the oldest member of all.
func (a *aged[K]) shed() K {
	all := func(K) bool { return true }
	k, ok := a.oldest(all)
	if !ok { // all are parked
		a.compact()
		k, _ = a.oldest(all)
	}
	delete(a.seq, k)
	return k
}

// compact rebuilds the heap from the members.
func (a *aged[K]) compact() {
	a.heap = a.heap[:0]
	for k, seq := range a.seq {
		a.heap = append(a.heap, age[K]{k, seq})
	}
	heap.Init(&a.heap)
}

type age[K comparable] struct {
	key K
	seq uint64
}

// ageHeap is a container/heap with the lowest sequence number first.
type ageHeap[K comparable] []age[K]

func (h ageHeap[K]) Len() int           { return len(h) }
func (h ageHeap[K]) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h ageHeap[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop are for container/heap.
func (h *ageHeap[K]) Push(x any) { *h = append(*h, x.(age[K])) }

// Pop removes the last element.
func (h *ageHeap[K]) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
