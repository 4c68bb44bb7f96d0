// Package conf keeps the runtime's CNI configuration on the node: the file
// that makes a runtime call us, with the default network in it. It writes the
// file once the agent can serve, keeps it equal to what it should be while the
// agent runs, and leaves it when the agent ends. It attaches nothing, and which
// networks a pod gets is not its business.
//
// Source: spec/multinet.md, "What its users suffer from": a file that is empty,
// that names itself as the default network, that goes at SIGTERM so that pods
// start without their networks, or whose writer falls over the default
// network's old CNI version.
package conf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/lib/filewatch"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Name is our file's: it sorts before the usual ones, and the first wins.
const Name = "00-fairlead.conflist"

// Auto as Config.Master is the first configuration that is not ours.
const Auto = "auto"

const (
	readyEvery = 500 * time.Millisecond // between two questions whether the agent is ready
	settle     = 100 * time.Millisecond // after a change, for those that follow it
	auditEvery = 5 * time.Second        // for failures that no event will end
)

// Config says what is written, where to, and from what.
type Config struct {
	// Dir is the runtime's directory, which is made if it is missing.
	Dir string
	// File is a configuration to install as it is; "" has one generated.
	File string
	// Master is the default network: "" our own, Auto, or the name of a file.
	Master string
	// MasterDir is where that file is looked for, "" for Dir.
	MasterDir string
	Options   Options
	// Ready is nil when the agent can serve what the file promises. It is asked
	// until then, and not any more.
	Ready func(context.Context) error
	Log   *slog.Logger
}

// Writer keeps the file.
type Writer struct {
	Config

	mu     sync.Mutex
	status error
}

// errStarting is the status before the first attempt.
var errStarting = errors.New("the agent is not ready yet")

// errWaiting wraps why there is no file yet, which an event will end.
var errWaiting = errors.New("waiting for the default network's configuration")

// New makes a Writer; nothing is touched before Run.
func New(c Config) *Writer {
	if c.MasterDir == "" {
		c.MasterDir = c.Dir
	}
	return &Writer{Config: c, status: errStarting}
}

// Status is nil while the file is what it should be, else why it is not.
func (w *Writer) Status() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run writes the file and keeps it until ctx ends. The file stays.
func (w *Writer) Run(ctx context.Context) {
	if !w.awaitReady(ctx) {
		return
	}
	first := true
	follow := filewatch.Config{Paths: w.folders, Quiet: settle, Period: auditEvery, Log: w.Log}
	_ = filewatch.Follow(ctx, follow, func() error { // ends with ctx alone
		err := w.pass(first)
		w.say(err)
		first = first && err != nil
		return nil
	})
}

// awaitReady returns true when the agent can serve. A file of an earlier agent
// stays in place meanwhile: its pods wait for us, which is right.
func (w *Writer) awaitReady(ctx context.Context) bool {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for w.Ready != nil && w.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

// folders are those whose files decide, and are, what is written.
func (w *Writer) folders() []string {
	if w.File != "" {
		return []string{w.Dir, filepath.Dir(w.File)}
	}
	dirs := []string{w.Dir, w.MasterDir}
	if l, err := libcni.NetworkConfFromFile(filepath.Join(w.Dir, Name)); err == nil {
		dirs = append(dirs, filepath.Join(w.Dir, l.Name))
	}
	return dirs
}

// say keeps the outcome, and logs it when it is news.
func (w *Writer) say(err error) {
	w.mu.Lock()
	before := w.status
	w.status = err
	w.mu.Unlock()
	switch {
	case err == nil:
	case before != nil && before.Error() == err.Error():
	case errors.Is(err, errWaiting):
		w.Log.Info("no CNI configuration is written yet", "dir", w.Dir, "reason", err.Error())
	default:
		w.Log.Error("CNI configuration not written", "dir", w.Dir, "err", err)
	}
}

// pass makes the file what it should be now. The first one writes it again in
// place even if it is right already: the runtime may have missed it.
func (w *Writer) pass(first bool) error {
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return err
	}
	want, from, err := w.Wanted()
	if err != nil {
		return err
	}
	path := filepath.Join(w.Dir, Name)
	have, err := hostfile.Read(path, hostfile.Limit)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && bytes.Equal(have, want) && !first:
		return nil
	case err == nil && bytes.Equal(have, want):
		return hostfile.Touch(path, want)
	}
	if err := hostfile.Announce(path, want, 0o644); err != nil {
		return err
	}
	w.Log.Info("CNI configuration written", "file", path, "default_network", from)
	return nil
}

// Wanted is the content that the file should have, and whose network it makes
// the default one.
func (w *Writer) Wanted() (content []byte, from string, err error) {
	if w.File != "" {
		b, err := hostfile.Read(w.File, hostfile.Limit)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errWaiting, err)
		}
		if err == nil {
			b, err = asList(b)
		}
		return b, w.File, err
	}
	if w.Master == "" {
		content, err = Own(w.Options)
		from = defaultName
	} else {
		content, from, err = w.around()
	}
	if err == nil {
		content, err = withFolder(content, w.Dir)
	}
	return content, from, err
}

// around is the configuration with the master's network.
func (w *Writer) around() (content []byte, name string, err error) {
	name, b, err := w.master()
	if err != nil {
		return nil, "", err
	}
	if content, err = Around(b, w.Options); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return content, name, err
}

// master reads the default network's file.
func (w *Writer) master() (name string, content []byte, err error) {
	if w.Master != Auto {
		path := filepath.Join(w.MasterDir, w.Master)
		b, err := hostfile.Read(path, hostfile.Limit)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s is not there", errWaiting, path)
		}
		return w.Master, b, err
	}
	entries, err := os.ReadDir(w.MasterDir) // by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	var passed []string
	for _, e := range entries {
		if e.Name() == Name || !candidate(e.Name()) {
			continue
		}
		b, err := hostfile.Read(filepath.Join(w.MasterDir, e.Name()), hostfile.Limit)
		if err == nil {
			_, err = readMaster(b)
		}
		if err == nil {
			return e.Name(), b, nil
		}
		passed = append(passed, e.Name()+": "+err.Error())
	}
	if len(passed) == 0 {
		return "", nil, fmt.Errorf("%w: %s has none but ours", errWaiting, w.MasterDir)
	}
	return "", nil, fmt.Errorf("%w: %s has none that can be it (%s)", errWaiting, w.MasterDir, strings.Join(passed, "; "))
}

// candidate tells what runtimes read.
func candidate(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}
