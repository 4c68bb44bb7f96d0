package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/filewatch"
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
	Period time.Duration // 0 is FilePeriod
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
	tell *teller

	mu       sync.Mutex
	known    map[string]*version
	problems []Problem
}

// version is the last state of one file.
type version struct {
	hash     [sha256.Size]byte
	read     bool // hash is of something
	good     []*v1.Pod
	problems []Problem // of the newest text
	unknown  map[types.UID][]string
}

// NewFile reads nothing yet.
func NewFile(cfg FileConfig) *File {
	if trimmed := strings.TrimRight(cfg.Path, "/"); trimmed != "" {
		cfg.Path = trimmed
	}
	if cfg.Period == 0 {
		cfg.Period = FilePeriod
	}
	return &File{cfg: cfg, tell: &teller{log: cfg.Log}, known: map[string]*version{}}
}

// Problems are those of the last time the files were read, by file and line.
func (f *File) Problems() []Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Problem(nil), f.problems...)
}

// Warnings name the fields of a pod that no pod has, with file and line.
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
	watched := filewatch.Config{Path: f.cfg.Path, Period: f.cfg.Period, Log: f.cfg.Log.With("of", "pods")}
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
	names, err := f.names()
	if err != nil {
		f.settle([]Problem{{Where: f.cfg.Path, Reason: err.Error()}})
		return nil, fmt.Errorf("list %s: %w", f.cfg.Path, err)
	}
	var problems []Problem
	var pods []*v1.Pod
	var where []string
	now := map[string]*version{}
	for _, name := range names {
		v := f.version(name)
		if v == nil {
			continue
		}
		now[name] = v
		problems = append(problems, v.problems...)
		for _, p := range v.good {
			pods, where = append(pods, p), append(where, name)
		}
	}
	pods, doubles := twice(pods, where)
	f.known = now
	f.settle(append(problems, doubles...))
	return pods, nil
}

func (f *File) settle(problems []Problem) {
	sortProblems(problems)
	f.problems = problems
	f.tell.tell(problems)
}

// names lists the files to read; none where nothing is.
func (f *File) names() ([]string, error) {
	info, err := os.Stat(f.cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		return []string{f.cfg.Path}, nil
	case !info.IsDir():
		return nil, errors.New("is neither a folder nor a file")
	}
	entries, err := os.ReadDir(f.cfg.Path) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed in between
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && (!f.cfg.Shared || objectFile(e.Name())) {
			out = append(out, filepath.Join(f.cfg.Path, e.Name()))
		}
	}
	return out, err
}

// objectFile tells the names of the files that the agent reads.
func objectFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// version reads one file; nil when it is not there any more.
func (f *File) version(name string) *version {
	old := f.known[name]
	if old == nil {
		old = &version{}
	}
	data, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &version{good: old.good, unknown: old.unknown, problems: []Problem{{Where: name, Reason: err.Error()}}}
	}
	hash := sha256.Sum256(data)
	if old.read && old.hash == hash {
		return old
	}
	p := parse(data, f.cfg.Static, name, true)
	return &version{hash: hash, read: true, good: p.over(old.good), problems: p.problems, unknown: p.unknown}
}

// read returns a file's text. Links are followed; what is no file then is an
// error, for a pipe would be waited for.
func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a file; folders in the folder are not read")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, plain(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSize))
	if err != nil {
		return nil, plain(err)
	}
	if len(data) >= maxSize {
		return nil, fmt.Errorf("has %d bytes or more", maxSize)
	}
	return data, nil
}

// plain leaves the path out: a Problem names it anyhow.
func plain(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}
