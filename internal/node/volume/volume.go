// Package volume makes the folders that a pod's volumes are, fills them and
// keeps their content up to date. It knows no runtime and no source: it is told
// a pod, and gives back where each volume lies on this machine.
//
// All that it makes lies below the pod's own folder, mounts included; so
// whoever finds that folder can remove it, whatever became of its maker.
package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/object"
)

// Mount is where a volume lies on this machine.
type Mount struct {
	Path     string
	ReadOnly bool // whatever the container asks for
}

// Tokens issues tokens of a pod's service account. An empty audience is the
// API server itself. It may be asked as often as one likes: one that is fresh
// enough is given again.
type Tokens interface {
	Token(ctx context.Context, pod *v1.Pod, audience string, lifetime time.Duration) (text string, expires time.Time, err error)
}

// Config says what volumes are made from.
type Config struct {
	Root     string // of the pods' folders: <root>/<uid>/volumes/<kind>/<name>
	Objects  object.Objects
	Tokens   Tokens          // nil on a node without an API server
	Capacity v1.ResourceList // what a container without a limit may use of the node
	Log      *slog.Logger
}

// Folder makes volumes below one folder. It is safe for concurrent use, but for
// calls about one pod.
type Folder struct {
	conf Config

	mu   sync.Mutex
	told map[string]string // by folder: why its content is not the newest
}

// New makes nothing yet.
func New(c Config) *Folder { return &Folder{conf: c, told: map[string]string{}} }

// Folders of kinds of volumes in a pod's own.
const (
	kindEmptyDir  = "empty-dir"
	kindConfigMap = "config-map"
	kindSecret    = "secret"
	kindDownward  = "downward-api"
	kindProjected = "projected"
)

// folder of all volumes of a pod, and of the mounts of their parts.
func (f *Folder) folder(uid types.UID) string {
	return filepath.Join(f.conf.Root, string(uid), "volumes")
}

func (f *Folder) parts(uid types.UID) string {
	return filepath.Join(f.conf.Root, string(uid), "volume-parts")
}

func (f *Folder) dir(uid types.UID, kind, name string) string {
	return filepath.Join(f.folder(uid), kind, name)
}

// SetUp makes every volume of the pod and may be called again at any time: what
// is there stays as it is, but for the content of those that follow an object
// or the pod itself. The error says which volume failed; it wraps
// object.ErrMissing when an object is what is missing.
func (f *Folder) SetUp(ctx context.Context, pod *v1.Pod) (map[string]Mount, error) {
	out := make(map[string]Mount, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		m, err := f.one(ctx, pod, v)
		if err != nil {
			return nil, fmt.Errorf("volume %s of %s/%s: %w", v.Name, pod.Namespace, pod.Name, err)
		}
		out[v.Name] = m
	}
	return out, nil
}

func (f *Folder) one(ctx context.Context, pod *v1.Pod, v *v1.Volume) (Mount, error) {
	if !isName(v.Name) {
		return Mount{}, errors.New("its name is no name of a folder")
	}
	switch {
	case v.EmptyDir != nil:
		return f.emptyDir(pod, v)
	case v.HostPath != nil:
		return hostPath(v.HostPath)
	case v.ConfigMap != nil:
		return f.content(ctx, pod, v, kindConfigMap, false)
	case v.Secret != nil:
		return f.content(ctx, pod, v, kindSecret, true)
	case v.DownwardAPI != nil:
		return f.content(ctx, pod, v, kindDownward, true)
	case v.Projected != nil:
		return f.content(ctx, pod, v, kindProjected, true)
	}
	return Mount{}, errors.New("this kind of volume is not supported on a node without a cluster")
}

// isName tells what may be the name of a folder.
func isName(name string) bool { return filepath.IsLocal(name) && filepath.Base(name) == name }

// content is a volume whose files we write. Those that may be secret are in
// memory. A volume that has been filled once keeps what it has while an object
// cannot be had: a pod that runs does not suffer from a file that was removed.
func (f *Folder) content(ctx context.Context, pod *v1.Pod, v *v1.Volume, kind string, memory bool) (Mount, error) {
	dir := f.dir(pod.UID, kind, v.Name)
	w := writer{dir: dir, group: fsGroup(pod)}
	files, err := f.payload(ctx, pod, v)
	if err != nil && (ctx.Err() != nil || !w.filled()) {
		return Mount{}, err
	}
	f.tell(pod, v.Name, dir, err)
	if err != nil {
		return Mount{Path: dir, ReadOnly: true}, nil //nolint:nilerr // told; what it has stays
	}
	if err := prepare(dir, w.group, memory); err != nil {
		return Mount{}, err
	}
	if err := w.write(files); err != nil {
		return Mount{}, err
	}
	return Mount{Path: dir, ReadOnly: true}, nil
}

// tell says once why a volume keeps older content, and when it no longer does.
func (f *Folder) tell(pod *v1.Pod, name, dir string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	f.mu.Lock()
	was := f.told[dir]
	if f.told[dir] = why; why == "" {
		delete(f.told, dir)
	}
	f.mu.Unlock()
	switch {
	case why != "" && why != was:
		f.conf.Log.Warn("volume keeps the content it has", "namespace", pod.Namespace, "pod", pod.Name, "volume", name, "why", why)
	case why == "" && was != "":
		f.conf.Log.Info("volume follows its objects again", "namespace", pod.Namespace, "pod", pod.Name, "volume", name)
	}
}

// TearDown removes all volumes of a pod that were made here, and what is
// mounted in them. What is gone already is success; a hostPath is not ours to
// remove.
func (f *Folder) TearDown(uid types.UID) error {
	if uid == "" || !filepath.IsLocal(string(uid)) {
		return nil
	}
	if err := f.tearDown(uid); err != nil {
		return fmt.Errorf("tear down volumes of %s: %w", uid, err)
	}
	f.forget(f.folder(uid))
	return nil
}

func (f *Folder) tearDown(uid types.UID) error {
	// Nothing may be removed as long as it could be somebody else's, seen
	// through a mount.
	if err := unmountBelow(filepath.Join(f.conf.Root, string(uid))); err != nil {
		return err
	}
	if err := removeEmpty(f.parts(uid)); err != nil {
		return err
	}
	return os.RemoveAll(f.folder(uid))
}

func (f *Folder) forget(folder string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir := range f.told {
		if within(dir, folder) {
			delete(f.told, dir)
		}
	}
}
