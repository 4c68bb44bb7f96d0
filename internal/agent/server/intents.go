package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/filewatch"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

const (
	// drainers bounds the containers whose intents are carried out at once in
	// the background.
	drainers = 16
	// retryIntents is when one that failed is tried again, at first; longestRetry
	// where it goes on failing.
	retryIntents, longestRetry = 10 * time.Second, 5 * time.Minute
	// awaitLimit is how long an ADD waits for intents, of however many containers:
	// its answer is to reach the plugin.
	awaitLimit = 40 * time.Second
	// maxIntent bounds an intent, in bytes.
	maxIntent = cni.MaxBody + 4096
)

// intents are the DELs that plugins left while no agent answered. Containers do
// not wait for each other: one whose DEL hangs holds up nobody else, neither an
// ADD nor, but for its place among the drainers, another DEL.
type intents struct {
	turns *keylock.Queue // by container: one drain or ADD of it at a time
	slots chan struct{}  // of the drainers

	pauses *retry.Pauses[string] // by container

	mu   sync.Mutex
	read map[string]intent // by path: a file is read once
	busy map[string]*drainer
}

// drainer is the goroutine of drain that sees to a container.
type drainer struct {
	news chan struct{} // there are more intents
	seen int           // how many it knows of
}

func newIntents() *intents {
	return &intents{
		turns: keylock.New(), slots: make(chan struct{}, drainers), pauses: retry.New[string](retryIntents, longestRetry),
		read: map[string]intent{}, busy: map[string]*drainer{},
	}
}

// intent is a DEL that a plugin left.
type intent struct {
	path string
	req  core.Request
}

// intentDirs are the folders in which plugins leave DELs that found no agent,
// one beside each socket.
func (s *Server) intentDirs() []string {
	var out []string
	for _, path := range s.Sockets {
		out = append(out, filepath.Join(filepath.Dir(path), cni.IntentsDir))
	}
	return out
}

// add is the engine's ADD, behind the intents of its own container, and of other
// containers of its namespace: an intent is never carried out beside an ADD that
// may make what it names.
func (s *Server) add(ctx context.Context, req core.Request) (engine.Answer, error) {
	if req.Token != "" { // part of an ADD that is under way
		return s.Engine.Add(ctx, req)
	}
	waiting, stop := context.WithTimeout(ctx, awaitLimit)
	defer stop()
	own, former := s.ahead(req)
	for _, id := range former {
		unlock, err := s.awaitIntents(waiting, id)
		if err != nil {
			return engine.Answer{}, err
		}
		unlock()
	}
	take := s.takeTurn
	if own {
		take = s.awaitIntents
	}
	unlock, err := take(waiting, req.Key.Container)
	if err != nil {
		return engine.Answer{}, err
	}
	defer unlock()
	return s.Engine.Add(ctx, req)
}

// ahead tells whether the container of a request has intents, and which others
// have some for the namespace that it names: whoever calls us has a new name for
// the same sandbox. The folders are read once for both.
func (s *Server) ahead(req core.Request) (own bool, former []string) {
	s.left.mu.Lock()
	defer s.left.mu.Unlock()
	for id, list := range s.list() {
		same := func(in intent) bool { return in.req.Netns != "" && in.req.Netns == req.Netns }
		if id == req.Key.Container {
			own = true
		} else if slices.ContainsFunc(list, same) {
			former = append(former, id)
		}
	}
	slices.Sort(former)
	return own, former
}

// takeTurn takes a container's turn among drains and ADDs.
func (s *Server) takeTurn(ctx context.Context, container string) (unlock func(), err error) {
	unlock, err = s.left.turns.Lock(ctx, container)
	return unlock, core.WithCode(core.CodeTryAgain, "container "+container, err)
}

// awaitIntents takes a container's turn and carries out its intents. Code 11 says
// that one of them has not come to an end.
func (s *Server) awaitIntents(ctx context.Context, container string) (unlock func(), err error) {
	unlock, err = s.takeTurn(ctx, container)
	if err != nil {
		return nil, err
	}
	if len(s.intentsOf(container)) == 0 {
		return unlock, nil
	}
	done := make(chan struct{})
	s.handlers.Go(func() { // a Detach that hangs does not end with ctx
		defer close(done)
		s.carryOut(ctx, container)
	})
	select {
	case <-done:
		return unlock, nil
	case <-ctx.Done():
		s.handlers.Go(func() { <-done; unlock() })
		return nil, core.WithCode(core.CodeTryAgain,
			"container "+container+": a DEL that was left while no agent answered is still under way", context.Cause(ctx))
	}
}

// drain sees to every container that has intents, beside whatever else the agent
// does, until they are carried out or ctx ends.
func (s *Server) drain(ctx context.Context) {
	s.left.mu.Lock()
	defer s.left.mu.Unlock()
	for id, list := range s.list() {
		d := s.left.busy[id]
		if d == nil {
			d = &drainer{news: make(chan struct{}, 1), seen: len(list)}
			s.left.busy[id] = d
			s.handlers.Go(func() { s.drainOf(ctx, id, d.news) })
			continue
		}
		if len(list) > d.seen {
			select {
			case d.news <- struct{}{}:
			default:
			}
		}
	}
}

// drainOf carries out the intents of one container until none is left. After a
// failure it rests, longer and longer, unless there is news of another intent.
func (s *Server) drainOf(ctx context.Context, id string, news <-chan struct{}) {
	defer s.left.pauses.Forget(id)
	for s.more(id) {
		select {
		case s.left.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		unlock, done := s.left.turns.TryLock(id) // an ADD that has it has carried them out
		if done {
			done = s.carryOut(ctx, id)
			unlock()
		}
		<-s.left.slots
		if done {
			continue
		}
		select {
		case <-time.After(s.left.pauses.Failed(id, time.Now())):
		case <-news:
			s.left.pauses.Forget(id)
		case <-ctx.Done():
			return
		}
	}
}

// more tells whether a container has intents; when it has none its goroutine ends.
func (s *Server) more(id string) bool {
	s.left.mu.Lock()
	defer s.left.mu.Unlock()
	if n := len(s.list()[id]); n > 0 {
		s.left.busy[id].seen = n
		return true
	}
	delete(s.left.busy, id)
	return false
}

func (s *Server) intentsOf(container string) []intent {
	s.left.mu.Lock()
	defer s.left.mu.Unlock()
	return s.list()[container]
}

// list gives the DELs that wait, by container, the latest first. The caller holds
// the lock.
func (s *Server) list() map[string][]intent {
	found, seen := map[string][]intent{}, map[string]intent{}
	for _, dir := range s.intentDirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // no folder, no intents
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if in, ok := s.intentAt(path, e); ok {
				seen[path] = in
				found[in.req.Key.Container] = append(found[in.req.Key.Container], in)
			}
		}
	}
	s.left.read = seen
	for _, list := range found {
		slices.SortStableFunc(list, func(a, b intent) int { return b.req.Called.Compare(a.req.Called) })
	}
	return found
}

// intentAt is the intent of a file, false for what is none or not yet one.
func (s *Server) intentAt(path string, e os.DirEntry) (intent, bool) {
	if in, ok := s.left.read[path]; ok {
		return in, true
	}
	if strings.HasPrefix(e.Name(), badPrefix) {
		return intent{}, false
	}
	if strings.HasPrefix(e.Name(), ".") { // still being written
		s.dropHalf(path, e)
		return intent{}, false
	}
	req, err := readIntent(path)
	if err == nil {
		return intent{path, req}, true
	}
	if !errors.Is(err, os.ErrNotExist) { // set aside, so that it is seen once and not for ever
		err = errors.Join(err, os.Rename(path, filepath.Join(filepath.Dir(path), badPrefix+e.Name())))
		s.Log.Error("DEL intent not readable: it is set aside, and not carried out", "intent", path, "err", err)
	}
	return intent{}, false
}

// badPrefix begins the name of an intent that nobody can read.
const badPrefix = ".bad-"

// halfLife is longer than any plugin lives that writes an intent.
const halfLife = 10 * time.Minute

// dropHalf removes what a plugin that was killed had not finished.
func (s *Server) dropHalf(path string, e os.DirEntry) {
	info, err := e.Info()
	if err != nil || time.Since(info.ModTime()) < halfLife {
		return
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Log.Error("half a DEL intent not removed", "intent", path, "err", err)
	}
}

// readIntent reads a file. An older plugin does not say when it was called: then
// it is the file's time.
func readIntent(path string) (core.Request, error) {
	data, err := hostfile.Read(path, maxIntent)
	if err != nil {
		return core.Request{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return core.Request{}, err
	}
	var in cni.Request
	if err := json.Unmarshal(data, &in); err != nil {
		return core.Request{}, err
	}
	if core.Op(in.Command) != core.Del {
		return core.Request{}, fmt.Errorf("command %q is not DEL", in.Command)
	}
	req, err := Decode(in)
	req.Called = core.Moment{Wall: info.ModTime()}
	if in.BootID != "" && in.Boottime > 0 {
		req.Called.BootID, req.Called.Boottime = in.BootID, time.Duration(in.Boottime)
	}
	return req, err
}

// carryOut does the intents of one container, whose turn the caller has, and
// tells whether all succeeded. Of those for one attachment the latest that
// succeeds does for all. The file goes only when the DEL succeeded.
func (s *Server) carryOut(ctx context.Context, container string) bool {
	done, whole := map[core.Key]bool{}, true
	for _, in := range s.intentsOf(container) {
		var err error
		if !done[in.req.Key] && !s.outdated(in.req) {
			err = s.Engine.Del(ctx, in.req)
		}
		if err == nil {
			done[in.req.Key] = true
			err = os.Remove(in.path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			whole = false
			s.Log.Error("DEL intent not carried out: it is tried again", "container", in.req.Key.Container, "intent", in.path, "err", err)
		}
	}
	return whole
}

// outdated tells that a DEL which was left was called before the attachment that
// its key names now was made: it is about an earlier one, and dropped. A DEL of
// another boot is older than what this boot made. Of an adopted record, which has
// no network's name, nobody knows the age: its DEL may be what was missed.
func (s *Server) outdated(req core.Request) bool {
	h, ok := s.View.Journal.Head(req.Key)
	if !ok || h.Network == "" {
		return false
	}
	called, made := req.Called, h.Called
	old := called.Compare(made) < 0
	if called.BootID != "" && called.BootID != made.BootID {
		old = made.BootID == s.Engine.BootID
	}
	if old {
		s.Log.Warn("late DEL dropped: the attachment that is there was made after it was called",
			"container", req.Key.Container, "ifname", req.Key.IfName, "called", called.Wall, "attached", made.Wall)
	}
	return old
}

// watch waits for intents and for sockets that vanish, until ctx ends.
func (s *Server) watch(ctx context.Context) {
	for _, dir := range s.intentDirs() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			s.Log.Error("plugins have no folder for DELs that find no agent", "folder", dir, "err", err)
		}
	}
	paths := s.intentDirs()
	for _, path := range s.Sockets {
		paths = append(paths, filepath.Dir(path))
	}
	follow := filewatch.Config{
		Paths: func() []string { return paths }, Quiet: time.Millisecond, Period: longestRetry, Log: s.Log.With("of", "sockets and intents"),
	}
	_ = filewatch.Follow(ctx, follow, func() error { // ends with ctx alone
		if err := s.Live(); err != nil {
			s.Log.Error("socket is gone and could not be made again: plugins that call on it get no answer", "err", err)
		}
		s.drain(ctx)
		return nil
	})
}
