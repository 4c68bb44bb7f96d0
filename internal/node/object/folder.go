package object

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/filewatch"
)

const (
	// maxSize bounds a file, exclusive, in bytes; as of pods.
	maxSize = 10 << 20
	// period is how often the files are looked at without an event.
	period = 20 * time.Second
)

// Folder has the ConfigMaps and Secrets that stand in files: YAML or JSON, one
// or several documents, lists too, beside documents of other kinds. What counts
// is what stands there when somebody asks. A file that cannot be understood is
// told, and what it said before stays in force until it is mended or removed.
type Folder struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	files map[string]*version
	has   map[Ref]any // *v1.ConfigMap or *v1.Secret
	told  map[string]bool
}

// version is the last state of one file.
type version struct {
	stamp stamp
	hash  [sha256.Size]byte
	good  []any
	bad   string // why the newest text is not taken
}

// stamp changes when a file is written, or another takes its place.
type stamp struct {
	size     int64
	modified time.Time
	inode    uint64
	changed  int64 // ns since 1970
}

// NewFolder reads nothing yet. path is a folder, of which the files count that
// stand directly in it and whose names do not begin with a dot; or one file.
func NewFolder(path string, log *slog.Logger) *Folder {
	return &Folder{path: filepath.Clean(path), log: log, files: map[string]*version{}, told: map[string]bool{}}
}

// ConfigMap reads the files anew where they changed.
func (f *Folder) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	o, err := f.object(Ref{ConfigMap, namespace, name})
	m, _ := o.(*v1.ConfigMap)
	return m, err
}

// Secret reads the files anew where they changed.
func (f *Folder) Secret(namespace, name string) (*v1.Secret, error) {
	o, err := f.object(Ref{Secret, namespace, name})
	s, _ := o.(*v1.Secret)
	return s, err
}

// Hold is not needed: all files are read.
func (f *Folder) Hold(types.UID, []Ref) {}

func (f *Folder) object(r Ref) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("%s %w: %w", r, ErrUnknown, err)
	}
	if o, has := f.has[r]; has {
		return o, nil
	}
	return nil, r.Missing("no file in " + f.path + " has it" + f.suspect())
}

// suspect names a file that could not be understood: the object may be there.
func (f *Folder) suspect() string {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if v := f.files[name]; v.bad != "" {
			return " (" + name + ": " + v.bad + ")"
		}
	}
	return ""
}

// Follow calls changed with each object that came, went or changed, until ctx
// ends. The error is that of ctx.
func (f *Folder) Follow(ctx context.Context, changed func(Ref)) error {
	known := map[Ref]any{}
	watched := filewatch.Config{Path: f.path, Period: period, Log: f.log.With("of", "objects")}
	return filewatch.Follow(ctx, watched, func() error {
		now := f.all()
		for _, r := range differ(known, now) {
			changed(r)
		}
		known = now
		return nil
	})
}

// all are the objects there are now; those known last when the files cannot be
// listed.
func (f *Folder) all() map[Ref]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		f.log.Debug("objects: files cannot be read", "path", f.path, "err", err)
	}
	return f.has
}

func differ(was, now map[Ref]any) []Ref {
	var out []Ref
	for r, o := range now {
		if old, had := was[r]; !had || old != o && !reflect.DeepEqual(old, o) {
			out = append(out, r)
		}
	}
	for r := range was {
		if _, has := now[r]; !has {
			out = append(out, r)
		}
	}
	return out
}

// read takes in what changed. f.mu is held.
func (f *Folder) read() error {
	names, err := f.names()
	if err != nil {
		return err
	}
	changed := f.has == nil
	now := make(map[string]*version, len(names))
	for _, name := range names {
		v := f.version(name)
		if v == nil {
			continue // removed in between
		}
		now[name] = v
		changed = changed || v != f.files[name]
	}
	if changed || len(now) != len(f.files) {
		f.files = now
		f.collect()
	}
	return nil
}

// collect builds the index. Of one name the last in the order of files counts,
// as of pods. f.mu is held.
func (f *Folder) collect() {
	has, where, now := map[Ref]any{}, map[Ref]string{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		v := f.files[name]
		if v.bad != "" {
			now[name+": "+v.bad] = true
		}
		for _, o := range v.good {
			r := refOf(o)
			if first, twice := where[r]; twice {
				now[fmt.Sprintf("%s: %s is left out: %s has one of the same name", first, r, name)] = true
			}
			has[r], where[r] = o, name
		}
	}
	for text := range now {
		if !f.told[text] {
			f.log.Warn("objects: a problem in a file", "reason", text)
		}
	}
	f.has, f.told = has, now
}

// names lists the files to read; none where nothing is.
func (f *Folder) names() ([]string, error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return []string{f.path}, nil
	}
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, filepath.Join(f.path, e.Name()))
		}
	}
	return out, err
}

// version is the state of a file, the one known if it has not changed; nil when
// it is not there or no file.
func (f *Folder) version(name string) *version {
	old := f.files[name]
	if old == nil {
		old = &version{}
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return nil // the pods' source says so
	case err != nil:
		return &version{good: old.good, bad: err.Error()}
	}
	now := stampOf(info)
	if old.stamp == now && time.Since(now.modified) > time.Second {
		return old // older than the clock of files is coarse
	}
	if info.Size() >= maxSize {
		return &version{stamp: now, good: old.good, bad: fmt.Sprintf("has %d bytes or more", maxSize)}
	}
	data, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		return &version{good: old.good, bad: err.Error()}
	}
	hash := sha256.Sum256(data)
	if old.hash == hash {
		old.stamp = now
		return old
	}
	v := &version{stamp: now, hash: hash}
	if v.good, err = parse(data); err != nil {
		v.good = old.good
		if objectFile(name) { // of others the pods' source says what is wrong
			v.bad = err.Error()
		}
	}
	return v
}

// objectFile tells names of files that ought to be objects.
func objectFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}
