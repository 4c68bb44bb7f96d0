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
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/hostfile"
)

// suffix of the files; their names are pods' UIDs.
const suffix = ".json"

// Folder holds a file per pod, for its owner alone: pods may name secrets.
type Folder struct{ dir string }

// New makes nothing yet.
func New(dir string) *Folder { return &Folder{dir: dir} }

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

// Save writes a pod, in the place of what was known of its UID; it is on the
// disk when Save returns.
func (f *Folder) Save(pod *v1.Pod) error {
	text, err := json.Marshal(pod)
	if err == nil {
		text, err = json.Marshal(record{Pod: text, Sum: sum(text)})
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", pod.UID, err)
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("checkpoint %s: %w", pod.UID, err)
	}
	if err := hostfile.Write(f.file(pod.UID), text, 0o600); err != nil {
		return fmt.Errorf("checkpoint %s: %w", pod.UID, err)
	}
	return nil
}

func (f *Folder) file(uid types.UID) string { return filepath.Join(f.dir, string(uid)+suffix) }

// Drop forgets a pod; one that is not known is success.
func (f *Folder) Drop(uid types.UID) error {
	if err := os.Remove(f.file(uid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("drop checkpoint %s: %w", uid, err)
	}
	return nil
}

// Load reads all pods. Files that are no whole records are removed and told in
// the error, beside the pods of the others.
func (f *Folder) Load() ([]*v1.Pod, error) {
	files, err := os.ReadDir(f.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load checkpoints: %w", err)
	}
	var pods []*v1.Pod
	var errs []error
	for _, d := range files {
		name := filepath.Join(f.dir, d.Name())
		pod, err := load(name)
		if err == nil && d.Name() != string(pod.UID)+suffix {
			err = fmt.Errorf("it is the pod %s", pod.UID)
		}
		if err == nil {
			pods = append(pods, pod)
			continue
		}
		if !strings.HasPrefix(d.Name(), ".") { // what was being written when the process ended
			errs = append(errs, fmt.Errorf("checkpoint %s is removed: %w", d.Name(), err))
		}
		errs = append(errs, os.Remove(name))
	}
	return pods, errors.Join(errs...)
}

func load(file string) (*v1.Pod, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
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
