package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/lib/filewatch"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// period is how often the files are looked at without an event.
const period = 20 * time.Second

// Folder has the ConfigMaps and Secrets that stand in files. What counts is what
// stands there when somebody asks; of two of one name the first by file, and by
// its place there. One that cannot be understood is told, and what it was before
// stays in force until it is mended or removed.
type Folder struct {
	files *folder.Subscription
	log   *slog.Logger

	mu    sync.Mutex
	known map[string]*version
	has   map[Ref]any // *v1.ConfigMap or *v1.Secret
	wrong string      // the first problem of a file; "" is none
}

// version is the last state of one file.
type version struct {
	from *folder.File
	good []declared
	bad  []folder.Problem // beside those of from
}

type declared struct {
	id     folder.ID
	object any
	file   string
	line   int
}

// NewFolder reads nothing yet. path is a folder, or one file.
func NewFolder(path string, log *slog.Logger) *Folder {
	return Over(folder.New(folder.Config{Path: filepath.Clean(path), Kinds: folder.Kinds(), Log: log}), log)
}

// Over is NewFolder of files that others read too.
func Over(files *folder.Folder, log *slog.Logger) *Folder {
	return &Folder{files: files.Subscribe(folder.ConfigMap, folder.Secret), log: log, known: map[string]*version{}}
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
	where := "no file in " + f.files.Path() + " has it"
	if f.wrong != "" { // the object may be there
		where += " (" + f.wrong + ")"
	}
	return nil, r.Missing(where)
}

// Follow calls changed with each object that came, went or changed, until ctx
// ends. The error is that of ctx.
func (f *Folder) Follow(ctx context.Context, changed func(Ref)) error {
	known := map[Ref]any{}
	watched := filewatch.Config{Paths: filewatch.Path(f.files.Path()), Period: period, Log: f.log.With("of", "objects")}
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
		f.log.Debug("objects: files cannot be read", "path", f.files.Path(), "err", err)
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
	files, err := f.files.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	changed := f.has == nil || len(files) != len(f.known)
	now := make(map[string]*version, len(files))
	for _, file := range files {
		v := f.known[file.Name]
		if v == nil || v.from != file {
			v, changed = understand(file, f.files.Of(file), v), true
		}
		now[file.Name] = v
	}
	if changed {
		f.known = now
		f.collect()
	}
	return nil
}

// collect builds the index. f.mu is held.
func (f *Folder) collect() {
	f.has, f.wrong = map[Ref]any{}, ""
	taken := map[folder.ID]declared{}
	var all, ours []folder.Problem
	for _, name := range slices.Sorted(maps.Keys(f.known)) {
		v := f.known[name]
		all, ours = append(append(all, v.from.Problems()...), v.bad...), append(ours, v.bad...)
		for _, d := range v.good {
			if first, twice := taken[d.id]; twice {
				ours = append(ours, folder.Twice(d.id, d.file, d.line, first.file, first.line))
				continue
			}
			f.has[refOf(d.object)], taken[d.id] = d.object, d
		}
	}
	if at := slices.IndexFunc(all, func(p folder.Problem) bool { return !p.Warning }); at >= 0 {
		f.wrong = all[at].String()
	}
	f.files.Tell(ours)
}
