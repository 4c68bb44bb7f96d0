// Package local is a resolve.Source over a folder of YAML: the desired state of
// a machine without a cluster. It holds Pods, NetworkAttachmentDefinitions,
// Subnets, Vlans and ProviderNetworks, each checked strictly; what is wrong is a Problem with file, line and reason, and the last good version
// stays in force. It knows no kernel and decides nothing about a pod: that is
// resolve's work.
package local

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Source serves what a folder declares. All methods may be called at the same
// time.
type Source struct {
	folder  *folder.Subscription // nil: nothing is declared
	makers  map[string]maker
	log     *slog.Logger
	current atomic.Pointer[state]
	changed chan struct{}
	retold  chan struct{} // when what is declared of pods has changed

	mu       sync.Mutex // guards what follows, and the order of reloads
	cache    map[*folder.File]file
	watchers []func(core.Pod)
	passed   func(folder.ID) // hears of each object that came, changed or went; it does not block
}

// Open reads dir once. An empty dir is an empty source, which has the built-in
// subnet only; a dir that cannot be read is an error, so that a misspelt flag
// does not pass for an empty folder. Files that are wrong are Problems.
func Open(dir string, log *slog.Logger) (*Source, error) {
	if dir == "" {
		s := newSource(nil, log)
		s.current.Store(assemble(nil, newState()))
		return s, nil
	}
	f, err := open(dir, folder.Kinds(), log)
	if err != nil {
		return nil, err
	}
	return Over(f, log)
}

func open(dir string, kinds []folder.Kind, log *slog.Logger) (*folder.Folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open objects %s: %w", dir, err)
	}
	return folder.New(folder.Config{Path: abs, Kinds: kinds, Log: log}), nil
}

// Over is Open of a folder that others read too.
func Over(f *folder.Folder, log *slog.Logger) (*Source, error) {
	return over(f, log, makers())
}

func over(f *folder.Folder, log *slog.Logger, by map[string]maker) (*Source, error) {
	s := newSource(f.Subscribe(slices.Collect(maps.Keys(by))...), log)
	s.makers = by
	if err := s.reload(); err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	return s, nil
}

func newSource(f *folder.Subscription, log *slog.Logger) *Source {
	s := &Source{folder: f, log: log, changed: make(chan struct{}, 1), retold: make(chan struct{}, 1), passed: func(folder.ID) {}}
	s.current.Store(newState())
	return s
}

// Changed gets a value after the objects or the Problems changed; changes that
// nobody waited for are told once.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Problems lists what is not in force as written, by file and line.
func (s *Source) Problems() []resolve.Problem { return slices.Clone(s.current.Load().problems) }

// Pod gives a pod of the folder. A pod that is declared but was never good is
// an error that says where; one that is not declared is core.ErrNotFound.
func (s *Source) Pod(_ context.Context, want core.Pod) (*resolve.Pod, error) {
	v, err := s.lookup(folder.ID{Kind: folder.Pod, Namespace: want.Namespace, Name: want.Name}, core.CodeValue)
	if err != nil {
		return nil, err
	}
	p, _ := v.(resolve.Pod)
	return &p, nil
}

// NAD gives a NetworkAttachmentDefinition of the folder; errors are as for Pod.
func (s *Source) NAD(_ context.Context, namespace, name string) (*resolve.NAD, error) {
	v, err := s.lookup(folder.ID{Kind: folder.NetworkAttachmentDefinition, Namespace: namespace, Name: name}, core.CodeConfig)
	if err != nil {
		return nil, err
	}
	n, _ := v.(resolve.NAD)
	return &n, nil
}

func (s *Source) lookup(i folder.ID, code uint) (any, error) {
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

// Underlay is what is declared of physical networks; the node has no object.
func (s *Source) Underlay() (declare.Underlay, error) {
	st := s.current.Load()
	u := declare.Underlay{Networks: list(st, func(p v1.ProviderNetwork) string { return p.Name })}
	for _, v := range list(st, func(v vlan) string { return v.Name }) {
		u.Vlans = append(u.Vlans, v.Vlan)
	}
	return u, nil
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
	files, same, err := s.read()
	if same {
		return nil
	}
	var next *state
	if err != nil {
		kept := *before
		kept.problems = []resolve.Problem{{File: s.folder.Path(), Reason: "the folder cannot be read: " + err.Error()}}
		next = &kept
	} else {
		next = assemble(files, before)
	}
	if reflect.DeepEqual(before, next) {
		return err
	}
	s.current.Store(next)
	s.report(next)
	s.tellPods(before, next)
	if !reflect.DeepEqual(before.declared, next.declared) {
		wake(s.retold)
	}
	s.tellAll(before, next)
	s.news()
	return err
}

// news has Changed tell.
func (s *Source) news() { wake(s.changed) }

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tellAll passes on which objects are not what they were.
func (s *Source) tellAll(before, next *state) {
	for i, o := range next.objects {
		if old := before.objects[i]; old != o && !reflect.DeepEqual(old, o) {
			s.passed(i)
		}
	}
	for i := range before.objects {
		if _, stays := next.objects[i]; !stays {
			s.passed(i)
		}
	}
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

// report logs what is in force, and has the folder tell the problems.
func (s *Source) report(next *state) {
	s.log.Info("objects loaded", "dir", s.folder.Path(), "objects", len(next.objects), "problems", len(next.problems))
	var all []folder.Problem
	for _, p := range next.problems {
		all = append(all, folder.Problem{Where: p.File, Line: p.Line, Reason: p.Reason})
	}
	s.folder.Tell(all)
}

// read gives what the files declare, understanding anew those that changed; same: all are
// those that it gave last.
func (s *Source) read() (files []file, same bool, err error) {
	all, err := s.folder.Read()
	if err != nil {
		s.cache = nil
		return nil, false, err
	}
	if s.cache != nil && len(s.cache) == len(all) && !slices.ContainsFunc(all, func(f *folder.File) bool { _, known := s.cache[f]; return !known }) {
		return nil, true, nil
	}
	fresh := make(map[*folder.File]file, len(all))
	for _, f := range all {
		known, ok := s.cache[f]
		if !ok {
			known = understand(f, s.folder.Of(f), s.makers)
		}
		fresh[f], files = known, append(files, known)
	}
	s.cache = fresh
	return files, false, nil
}
