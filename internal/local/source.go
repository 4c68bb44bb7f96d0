// Package local is a resolve.Source over a folder of YAML: the desired state of
// a machine without a cluster. It holds Pods, NetworkAttachmentDefinitions,
// Subnets, Vlans, ProviderNetworks and ConfigMaps, each checked strictly; what
// is wrong is a Problem with file, line and reason, and the last good version
// stays in force. It knows no kernel and decides nothing about a pod: that is
// resolve's work.
package local

import (
	"cmp"
	"context"
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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

// Source serves what a folder declares. All methods may be called at the same
// time.
type Source struct {
	dir     string
	log     *slog.Logger
	current atomic.Pointer[state]
	changed chan struct{}

	mu       sync.Mutex // guards what follows, and the order of reloads
	cache    map[string]cached
	watchers []func(core.Pod)
}

// cached is a parsed file and the sign by which a change is seen.
type cached struct {
	stamp stamp
	file  file
}

// stamp tells two versions of a file apart without reading it. One that was
// taken right after the write is not trusted: a second write within the clock's
// tick would leave it the same.
type stamp struct {
	dev, inode uint64
	size       int64
	mtime      time.Time
	settled    bool
}

const settleTime = 2 * time.Second

// Open reads dir once. An empty dir is an empty source, which has the built-in
// subnet only; a dir that cannot be read is an error, so that a misspelt flag
// does not pass for an empty folder. Files that are wrong are Problems.
func Open(dir string, log *slog.Logger) (*Source, error) {
	s := &Source{log: log, changed: make(chan struct{}, 1), cache: map[string]cached{}}
	s.current.Store(assemble(nil, newState()))
	if dir == "" {
		return s, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open objects %s: %w", dir, err)
	}
	s.dir = abs
	s.current.Store(newState())
	if err := s.reload(); err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	return s, nil
}

// Changed gets a value after the objects or the Problems changed; changes that
// nobody waited for are told once.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Problems lists what is not in force as written, by file and line.
func (s *Source) Problems() []resolve.Problem { return slices.Clone(s.current.Load().problems) }

// Pod gives a pod of the folder. A pod that is declared but was never good is
// an error that says where; one that is not declared is core.ErrNotFound.
func (s *Source) Pod(_ context.Context, want core.Pod) (*resolve.Pod, error) {
	v, err := s.lookup(id{kindPod, want.Namespace, want.Name}, core.CodeValue)
	if err != nil {
		return nil, err
	}
	p, _ := v.(resolve.Pod)
	return &p, nil
}

// NAD gives a NetworkAttachmentDefinition of the folder; errors are as for Pod.
func (s *Source) NAD(_ context.Context, namespace, name string) (*resolve.NAD, error) {
	v, err := s.lookup(id{kindNAD, namespace, name}, core.CodeConfig)
	if err != nil {
		return nil, err
	}
	n, _ := v.(resolve.NAD)
	return &n, nil
}

func (s *Source) lookup(i id, code uint) (any, error) {
	st := s.current.Load()
	if o, ok := st.objects[i]; ok {
		return o.value, nil
	}
	if p, ok := st.broken[i]; ok {
		return nil, core.Errorf(code, "%s is declared but wrong: %s", i, p)
	}
	return nil, fmt.Errorf("%s: %w", i, core.ErrNotFound)
}

// Subnets gives the Subnets in force by name, the built-in one included when
// none is declared as default.
func (s *Source) Subnets(context.Context) ([]core.Subnet, error) {
	return slices.Clone(s.current.Load().all), nil
}

// NADs lists the NetworkAttachmentDefinitions in force by namespace and name.
func (s *Source) NADs() []resolve.NAD {
	return list(s.current.Load(), func(n resolve.NAD) string { return n.Namespace + "/" + n.Name })
}

func list[T any](st *state, key func(T) string) []T {
	var out []T
	for _, o := range st.objects {
		if v, ok := o.value.(T); ok {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return out
}

// reload reads what changed in the folder and puts the outcome in force. When
// the folder itself cannot be read, everything stays as it was.
func (s *Source) reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.Load()
	files, err := s.read()
	var next *state
	if err != nil {
		kept := *before
		kept.problems = []resolve.Problem{{File: s.dir, Reason: "the folder cannot be read: " + err.Error()}}
		next = &kept
	} else {
		next = assemble(files, before)
	}
	if reflect.DeepEqual(before, next) {
		return err
	}
	s.current.Store(next)
	s.report(before, next)
	s.tellPods(before, next)
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return err
}

// WatchPods has fn called for each pod that appears in the folder, and when its
// annotations change. Calls must not block; they come one at a time.
func (s *Source) WatchPods(fn func(core.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, fn)
}

func (s *Source) tellPods(before, next *state) {
	for i, o := range next.objects {
		p, ok := o.value.(resolve.Pod)
		if !ok {
			continue
		}
		if old := before.objects[i]; old != nil {
			if was, ok := old.value.(resolve.Pod); ok && maps.Equal(was.Annotations, p.Annotations) {
				continue
			}
		}
		for _, fn := range s.watchers {
			fn(p.Pod)
		}
	}
}

// report logs the problems that are new.
func (s *Source) report(before, next *state) {
	s.log.Info("objects loaded", "dir", s.dir, "objects", len(next.objects), "problems", len(next.problems))
	for _, p := range next.problems {
		if !slices.Contains(before.problems, p) {
			s.log.Warn("object refused", "file", p.File, "line", p.Line, "reason", p.Reason)
		}
	}
}

// read gives every object file of the folder, parsing those that changed.
func (s *Source) read() ([]file, error) {
	folder, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	fresh := make(map[string]cached, len(s.cache))
	var files []file
	missing := false
	for _, e := range entries {
		if !wanted(e.Name()) {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		st, isFile, err := stampOf(path)
		if errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0 { // since ReadDir
			missing = true
			continue
		}
		if err != nil || isFile {
			fresh[path] = s.reuse(path, st, err)
			files = append(files, fresh[path].file)
		}
	}
	if missing && !s.is(folder) {
		return nil, fmt.Errorf("%s: %w", s.dir, fs.ErrNotExist)
	}
	s.cache = fresh
	return files, nil
}

// reuse gives a file as it was parsed already, if it is surely the same.
func (s *Source) reuse(path string, st stamp, statErr error) cached {
	c, known := s.cache[path]
	if statErr == nil && known && st.settled && c.stamp == st {
		return c
	}
	return cached{stamp: st, file: load(path, st.size, statErr)}
}

// is tells whether the folder is still the one that was opened: one that is moved
// away while it is read takes its files along, and no object was deleted.
func (s *Source) is(opened *os.File) bool {
	a, err := opened.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(s.dir)
	return err == nil && os.SameFile(a, b)
}

// wanted tells object files by name; hidden ones are editors' and kubelet's.
func wanted(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

func stampOf(path string) (st stamp, isFile bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, false, err
	}
	st = stamp{size: info.Size(), mtime: info.ModTime(), settled: time.Since(info.ModTime()) > settleTime}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.dev, st.inode = sys.Dev, sys.Ino
	}
	return st, info.Mode().IsRegular(), nil
}

// load reads one file; statErr is why even its size is unknown.
func load(path string, size int64, statErr error) file {
	f := file{name: path}
	data, err := []byte(nil), statErr
	switch {
	case err != nil:
	case size > maxFile:
		err = fmt.Errorf("has %d bytes, the limit is %d", size, maxFile)
	default:
		data, err = os.ReadFile(path)
	}
	if err != nil {
		f.opaque = true
		f.docs = []document{{faults: []*fault{faultf(0, "cannot be read: %v", err)}}}
		return f
	}
	f.docs = parse(path, data)
	f.opaque = slices.ContainsFunc(f.docs, func(d document) bool { return d.opaque() })
	return f
}
