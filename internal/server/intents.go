package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
)

// intentDirs are the folders in which plugins leave DELs that found no agent,
// one beside each socket.
func (s *Server) intentDirs() []string {
	var out []string
	for _, path := range s.Sockets {
		out = append(out, filepath.Join(filepath.Dir(path), cni.IntentsDir))
	}
	return out
}

// drainers bounds the intents that are carried out at once.
const drainers = 16

// intent is a DEL that a plugin left.
type intent struct {
	path string
	req  core.Request
}

// drainIntents carries out every DEL that was left while no agent answered. It
// comes before any ADD, and whenever a file appears. One drain runs at a time;
// who finds one under way waits for it and looks again. Containers do not wait
// for each other: after a long absence there are hundreds.
func (s *Server) drainIntents(ctx context.Context) {
	select {
	case s.draining <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-s.draining }()
	var wg sync.WaitGroup
	slots := make(chan struct{}, drainers)
	for _, list := range s.intents() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.carryOut(ctx, list)
		})
	}
	wg.Wait()
}

// intents are the DELs that wait, of each container the oldest first.
func (s *Server) intents() map[string][]intent {
	found := map[string][]intent{}
	for _, dir := range s.intentDirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // no folder, no intents
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if strings.HasPrefix(e.Name(), badPrefix) {
				continue
			}
			if strings.HasPrefix(e.Name(), ".") { // still being written
				s.dropHalf(path, e)
				continue
			}
			req, err := readIntent(path)
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil: // set aside, so that it is seen once and not for ever
				err = errors.Join(err, os.Rename(path, filepath.Join(dir, badPrefix+e.Name())))
				s.Log.Error("DEL intent not readable", "intent", path, "err", err)
			default:
				found[req.Key.Container] = append(found[req.Key.Container], intent{path, req})
			}
		}
	}
	return found
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

func readIntent(path string) (core.Request, error) {
	data, err := os.ReadFile(path)
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
	return Decode(in)
}

// carryOut does the intents of one container; of those for one attachment the
// first that succeeds does for all. The file goes only when the DEL succeeded.
func (s *Server) carryOut(ctx context.Context, list []intent) {
	done := map[core.Key]bool{}
	for _, in := range list {
		var err error
		if !done[in.req.Key] {
			err = s.Engine.Del(ctx, in.req)
		}
		if err == nil {
			done[in.req.Key] = true
			err = os.Remove(in.path)
		}
		if err != nil {
			s.Log.Error("DEL intent not carried out", "container", in.req.Key.Container, "intent", in.path, "err", err)
		}
	}
}

// watch waits for intents and for sockets that vanish. Without inotify the
// agent still works: intents are drained before each ADD and Live repairs
// sockets.
func (s *Server) watch(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch sockets: %w", err)
	}
	defer func() { _ = w.Close() }()
	for _, path := range s.Sockets {
		if err := w.Add(filepath.Dir(path)); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
	for _, dir := range s.intentDirs() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("watch intents: %w", err)
		}
		if err := w.Add(dir); err != nil {
			return fmt.Errorf("watch intents: %w", err)
		}
	}
	// What happened before there was a watch.
	if err := s.Live(); err != nil {
		s.Log.Error("socket not made again", "err", err)
	}
	s.drainIntents(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			s.Log.Error("watch of the socket folder", "err", err)
		case ev := <-w.Events:
			s.fileEvent(ctx, ev)
		}
	}
}

func (s *Server) fileEvent(ctx context.Context, ev fsnotify.Event) {
	switch {
	case filepath.Base(filepath.Dir(ev.Name)) == cni.IntentsDir:
		if ev.Has(fsnotify.Create) {
			s.drainIntents(ctx)
		}
	case ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename):
		if err := s.Live(); err != nil {
			s.Log.Error("socket not made again", "err", err)
		}
	}
}
