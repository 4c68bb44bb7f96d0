// Package condition is what an agent tells pods of its node that lasts, and keeps it in a
// file: an agent that was started anew knows no more by itself that something was amiss. It
// must not know how a pod is told.
package condition

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Condition is one condition of a pod or a Node (core/v1 PodCondition and NodeCondition).
type Condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"` // True, False or Unknown
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	LastHeartbeatTime  metav1.Time `json:"lastHeartbeatTime,omitzero"` // of a Node: when it was written
}

// Book is how the conditions of pods should be. Its methods may be called at the same time.
type Book struct {
	file   string
	saving sync.Mutex // held while the file is written

	mu   sync.Mutex
	pods map[string]kept // by namespace/name
}

// kept are the conditions of one pod, by type, as the file has them.
type kept struct {
	Pod        core.Pod    `json:"pod"` // as the caller meant it; UID "" is whoever has the name
	Conditions []Condition `json:"conditions"`
}

// Open reads the file. The Book is good for use also where there is an error.
func Open(file string) (*Book, error) {
	b := &Book{file: file, pods: map[string]kept{}}
	var all []kept
	_, err := recordfile.Load(file, &all)
	for _, k := range all {
		b.pods[k.Pod.String()] = k
	}
	return b, err
}

// Want has a condition of a pod be as next, and gives false where it was to be so already.
// What others of its name were told counts no more.
func (b *Book) Want(pod core.Pod, next Condition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.pods[pod.String()]
	if k.Pod != pod {
		k = kept{Pod: pod}
	}
	at, is := slices.BinarySearchFunc(k.Conditions, next.Type, func(c Condition, kind string) int { return cmp.Compare(c.Type, kind) })
	next.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	k.Conditions = slices.Clone(k.Conditions)
	if !is {
		k.Conditions = slices.Insert(k.Conditions, at, Condition{})
	}
	if old := k.Conditions[at]; old.Status == next.Status {
		if next.LastTransitionTime = old.LastTransitionTime; next == old {
			return false
		}
	}
	k.Conditions[at] = next
	b.pods[pod.String()] = k
	return true
}

// Of are the conditions of the pod of a name, by type, and the UID of whom the caller meant.
func (b *Book) Of(pod core.Pod) (uid string, all []Condition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.pods[pod.String()]
	return k.Pod.UID, k.Conditions
}

// Forget is for a pod that is gone; false where it was told nothing.
func (b *Book) Forget(pod core.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, told := b.pods[pod.String()]
	delete(b.pods, pod.String())
	return told
}

// Save writes the file, of the pods that are there.
func (b *Book) Save(there func(core.Pod) bool) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	b.mu.Lock()
	all := slices.SortedFunc(maps.Values(b.pods), func(x, y kept) int { return cmp.Compare(x.Pod.String(), y.Pod.String()) })
	b.mu.Unlock()
	if all = slices.DeleteFunc(all, func(k kept) bool { return !there(k.Pod) }); len(all) == 0 {
		return recordfile.Remove(b.file)
	}
	return recordfile.Save(b.file, all)
}
