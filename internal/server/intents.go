package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// DrainIntents carries out every DEL that was left while no agent ran. The
// server calls it before any ADD and whenever a file appears; the agent calls
// it once before it listens.
func (s *Server) DrainIntents(ctx context.Context) { s.drainIntents(ctx) }

func (s *Server) drainIntents(ctx context.Context) {
	s.draining.Lock()
	defer s.draining.Unlock()
	for _, dir := range s.intentDirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // no folder, no intents
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue // still being written
			}
			path := filepath.Join(dir, e.Name())
			if err := s.carryOut(ctx, path); err != nil {
				s.Log.Error("DEL intent not carried out", "intent", path, "err", err)
			}
		}
	}
}

// carryOut does one intent. The file goes only when the DEL succeeded; one
// that cannot be read is set aside, so that it is seen once and not for ever.
func (s *Server) carryOut(ctx context.Context, path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var in cni.Request
	err = json.Unmarshal(data, &in)
	var req core.Request
	if err == nil && core.Op(in.Command) != core.Del {
		err = fmt.Errorf("command %q is not DEL", in.Command)
	}
	if err == nil {
		req, err = Decode(in)
	}
	if err != nil {
		return errors.Join(err, os.Rename(path, filepath.Join(filepath.Dir(path), ".bad-"+filepath.Base(path))))
	}
	if err := s.Engine.Del(ctx, req); err != nil {
		return err
	}
	return os.Remove(path)
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
