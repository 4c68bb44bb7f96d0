// Package checkpoint keeps pods of remote sources on the disk, so that a new
// process knows what its pods are before any source has spoken: containers that
// end meanwhile are started again, and after a reboot without a network the
// pods come up. It knows neither sources nor what is done with the pods.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Folder holds a file per pod, for its owner alone: pods may name secrets.
type Folder struct{ dir *recordfile.Dir[*v1.Pod] }

// New makes nothing yet.
func New(dir string) *Folder {
	return &Folder{recordfile.NewDir(dir, recordfile.Form[*v1.Pod]{
		What: "checkpoint", Suffix: ".json", ID: func(p *v1.Pod) string { return string(p.UID) }, Encode: encode, Decode: decode, Drop: true,
	})}
}

// record is what a file holds. The sum is of the pod's bytes: a file of which
// the disk lost a part is none.
type record struct {
	Pod json.RawMessage `json:"pod"`
	Sum string          `json:"sum"` // FNV-64a, hexadecimal
}

func sum(data []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(data) // a hash never fails
	return fmt.Sprintf("%x", h.Sum64())
}

func encode(pod *v1.Pod) ([]byte, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	return json.Marshal(record{Pod: text, Sum: sum(text)})
}

func decode(text []byte) (*v1.Pod, error) {
	r := record{}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if sum(r.Pod) != r.Sum {
		return nil, errors.New("its sum is wrong")
	}
	pod := &v1.Pod{}
	return pod, json.Unmarshal(r.Pod, pod)
}

// Save writes a pod, in the place of what was known of its UID; it is on the
// disk when Save returns.
func (f *Folder) Save(pod *v1.Pod) error { return f.dir.Put(pod) }

// Drop forgets a pod; one that is not known is success.
func (f *Folder) Drop(uid types.UID) error { return f.dir.Forget(string(uid)) }

// Load reads all pods. Files that are no whole records are removed and told in
// the error, beside the pods of the others.
func (f *Folder) Load() ([]*v1.Pod, error) {
	records, err := f.dir.Load()
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(records)) {
		pods = append(pods, records[uid])
	}
	return pods, err
}
