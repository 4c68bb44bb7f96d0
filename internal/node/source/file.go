package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/lib/filewatch"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// FilePeriod is how often the files are read without an event.
const FilePeriod = 20 * time.Second

// FileConfig says where the files are.
type FileConfig struct {
	Static
	// Path is a folder, of which the files that stand directly in it count and
	// whose names do not begin with a dot; or one file. It is part of the pods'
	// UIDs as it is written here.
	Path   string
	Folder *folder.Folder // of Path, if others read it too
	Period time.Duration  // 0 is FilePeriod
	Log    *slog.Logger
}

// File reads pods from files: YAML or JSON, each a Pod, a PodList or List, or
// several such documents. What cannot be read or understood is told as a Problem,
// and leaves the rest of the file alone: of a document that is refused, what it
// said before stays in force until it is mended or removed. Where it does not tell
// which pod it declares, and where nothing of the file is right, that is all that
// the file said before and does not say now.
type File struct {
	cfg  FileConfig
	from *folder.Subscription

	mu       sync.Mutex
	known    map[string]*version
	problems []Problem
}

// version is the last state of one file.
type version struct {
	parsed
	good []declared
}

// NewFile reads nothing yet.
func NewFile(cfg FileConfig) *File {
	if trimmed := strings.TrimRight(cfg.Path, "/"); trimmed != "" {
		cfg.Path = trimmed
	}
	if cfg.Period == 0 {
		cfg.Period = FilePeriod
	}
	if cfg.Folder == nil {
		cfg.Folder = folder.New(folder.Config{Path: cfg.Path, All: !cfg.Shared, Kinds: cfg.Kinds(), Log: cfg.Log})
	}
	return &File{cfg: cfg, from: cfg.Folder.Subscribe(folder.Pod), known: map[string]*version{}}
}

// Problems are those of the last time the files were read, by file and line.
func (f *File) Problems() []Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Problem(nil), f.problems...)
}

// Warnings name the fields in a pod's file that the Pod API does not know, with
// file and line.
func (f *File) Warnings(uid types.UID) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.known {
		if w := v.unknown[uid]; len(w) > 0 {
			return w
		}
	}
	return nil
}

// Run sends all pods to out whenever they changed, and once in the beginning,
// until ctx ends. A path that is not there has no pods. The error is that of
// ctx.
func (f *File) Run(ctx context.Context, out chan<- []*v1.Pod) error {
	first := true
	var sent []*v1.Pod
	watched := filewatch.Config{Paths: filewatch.Path(f.cfg.Path), Period: f.cfg.Period, Log: f.cfg.Log.With("of", "pods")}
	return filewatch.Follow(ctx, watched, func() error {
		pods, err := f.List()
		// An error is among the Problems; what was sent stays in force.
		if known := err == nil; known && (first || !slices.Equal(sent, pods)) {
			first, sent = false, pods
			return send(ctx, out, pods)
		}
		return nil
	})
}

// List reads the files now and returns all pods in the order of the files'
// names. They are not to be changed. An error says that nothing is known: the
// path is there and cannot be read.
func (f *File) List() ([]*v1.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	files, err := f.from.Read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.settle(nil, []Problem{{Where: f.cfg.Path, Reason: err.Error()}})
		return nil, fmt.Errorf("list %s: %w", f.cfg.Path, err)
	}
	var theirs, ours []Problem
	var all []declared
	now := map[string]*version{}
	for _, file := range files {
		v := f.version(file)
		now[file.Name] = v
		theirs, ours = append(theirs, file.Problems()...), append(ours, v.problems...)
		all = append(all, v.good...)
	}
	pods, doubles := twice(all)
	f.known = now
	f.settle(theirs, append(ours, doubles...))
	return pods, nil
}

// settle keeps the problems of the files, which the folder tells, and tells ours.
func (f *File) settle(theirs, ours []Problem) {
	f.from.Tell(ours)
	f.problems = slices.Concat(theirs, ours)
	folder.SortProblems(f.problems)
}

// version is what a file says now.
func (f *File) version(file *folder.File) *version {
	old := f.known[file.Name]
	switch {
	case old == nil:
		old = &version{}
	case old.from == file:
		return old
	}
	p := parse(file, f.from.Of(file), f.cfg.Static, true)
	v := &version{parsed: p, good: p.over(old.good)}
	for _, d := range v.good { // of one that is held, too
		if u := old.unknown[d.pod.UID]; u != nil && v.unknown[d.pod.UID] == nil && v.held(d) {
			v.unknown[d.pod.UID] = u
		}
	}
	return v
}

// held tells a pod that is in force as it was written before.
func (v *version) held(d declared) bool {
	return !slices.ContainsFunc(v.pods, func(now declared) bool { return now.id == d.id })
}
