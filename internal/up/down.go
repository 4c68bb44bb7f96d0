package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/ops/client"
)

// Down takes down what is up.
type Down struct {
	// Dir is the folder, "" for the one that is up; StateDir has its record.
	Dir, StateDir string
	Verbose       bool // the log of the parts goes to standard error
	// Recorded gives back what `fairlead up` was told, from its record.
	Recorded func(*Record) (Config, error)
}

// StopUnit ends the service, so that systemd does not start what is taken down.
func StopUnit(ctx context.Context, out io.Writer, uninstall bool) error {
	_, err := os.Stat(unitFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !uninstall {
		if !booted() {
			return nil // nobody runs the unit
		}
		return systemctl(ctx, out, []string{"stop", unitName})
	}
	if err := systemctl(ctx, out, []string{"disable", "--now", unitName}); err != nil {
		return err
	}
	if err := os.Remove(unitFile); err != nil {
		return fmt.Errorf("--uninstall: %w", err)
	}
	_, _ = fmt.Fprintln(out, "removed", unitFile)
	return systemctl(ctx, out, []string{"daemon-reload"})
}

// sayStrayShims ends the shims that containerd has forgotten, and says so.
func sayStrayShims(endpoint string, out io.Writer) {
	if ended, err := endStrayShims(endpoint); err != nil {
		_, _ = fmt.Fprintln(out, "!", err)
	} else if ended > 0 {
		_, _ = fmt.Fprintln(out, "ended", ended, "shims that containerd had forgotten")
	}
}

// Run takes down what the record says.
func (d Down) Run(ctx context.Context, out io.Writer) error {
	r, err := Load(d.StateDir)
	if err != nil {
		return err
	}
	if r == nil {
		_, err := fmt.Fprintln(out, "nothing is up")
		return err
	}
	if err := d.matches(r); err != nil {
		return err
	}
	lock, err := Stop(ctx, d.StateDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	o, err := d.Recorded(r)
	if err != nil {
		return err
	}
	rt, err := o.find(ctx, r)
	if err != nil {
		return err
	}
	if err := d.removePods(ctx, &o, rt, *r, out); err != nil {
		return err
	}
	sayStrayShims(o.endpoint(rt), out)
	// Without Open vSwitch there are none, and it may be gone for good.
	if err := o.clear(ctx); err != nil {
		_, _ = fmt.Fprintln(out, "!", err)
	} else {
		_, _ = fmt.Fprintln(out, "removed the gateways of all subnets")
	}
	if err := removeOurs(r.Wrote, out); err != nil {
		return err
	}
	if err := o.sweep(); err != nil {
		return err
	}
	return Forget(d.StateDir)
}

// clear removes the gateways of all subnets.
func (o *Config) clear(ctx context.Context) error {
	c := o.agent(slog.New(slog.DiscardHandler))
	return c.Clear(ctx)
}

// sweep removes what only a kill at a bad moment leaves, and nobody can need
// once no pod is left: logs of pods that the runtime never had, and halves of
// messages to the agent.
func (o *Config) sweep() error {
	logs, err := filepath.Glob(filepath.Join(globbed(o.LogDir), "*-"+globbed(o.NodeName)+"_"+strings.Repeat("[0-9a-f]", 32)))
	if err != nil {
		return fmt.Errorf("--log-dir: %w", err)
	}
	halves, err := filepath.Glob(filepath.Join(globbed(o.besideSocket(cni.IntentsDir)), ".[0-9]*"))
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	var errs []error
	for _, path := range append(logs, halves...) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// globbed is a path as a pattern that means nothing else.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// matches wants --dir to name what is up.
func (d Down) matches(r *Record) error {
	if d.Dir == "" {
		return nil
	}
	abs, err := filepath.Abs(d.Dir)
	if err == nil && abs != r.Dir {
		err = hint.On(fmt.Errorf("%s is not up: %s is", abs, r.Dir), "leave --dir out, or name that folder")
	}
	return err
}

// removeOurs removes the files that were made for the runtime's sake, but for a
// program that somebody has put in the place of ours.
func removeOurs(paths []string, out io.Writer) error {
	for _, path := range paths {
		if filepath.Base(path) == "fairlead" && !hostfile.OwnPlugin(path) {
			continue
		}
		if err := hostfile.Remove(path); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, "removed", path)
	}
	return nil
}

// removePods runs all parts with no pods named, until none is left.
func (d Down) removePods(ctx context.Context, o *Config, rt Runtime, r Record, out io.Writer) error {
	log := slog.New(slog.DiscardHandler)
	if d.Verbose {
		log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	o.ending = true
	parts := o.list(rt, r, filepath.Join(o.StateDir, "none"), log)
	parts[0].Ready = func(ctx context.Context) error { // pods end though no new one could begin
		_, err := client.New(o.Socket).Status(ctx)
		return err
	}
	done := make(chan error, 1)
	group := Group{Parts: parts, Log: log.With("part", "down"), Ready: func() {
		go func() {
			done <- o.watchEnd(running, o.endpoint(rt), out)
			stop()
		}()
	}}
	if err := group.Run(running); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return hint.On(fmt.Errorf("pods are left: %w", ctx.Err()), "`fairlead down --verbose` says what happens; it may be repeated")
	}
	return <-done
}

// watchEnd tells of each pod that it is gone, and returns when none is left.
func (o *Config) watchEnd(ctx context.Context, endpoint string, out io.Writer) error {
	conn, err := podruntime.Dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	pods := podruntime.New(podruntime.Config{Runtime: cri.NewRuntimeServiceClient(conn), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	told := map[string]string{} // names by UID
	for {
		left, err := o.left(ctx, pods)
		if err == nil {
			for uid, name := range left {
				told[uid] = cmp.Or(name, told[uid], "with UID "+uid)
			}
			for _, uid := range slices.Sorted(maps.Keys(told)) {
				if _, is := left[uid]; !is {
					_, _ = fmt.Fprintln(out, "removed pod", told[uid])
					delete(told, uid)
				}
			}
			if len(left) == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// left are the pods, by UID, of which the runtime or the disk still has
// something. The disk knows no names.
func (o *Config) left(ctx context.Context, pods *podruntime.Runtime) (map[string]string, error) {
	list, err := pods.List(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	dirs, err := os.ReadDir(filepath.Join(o.StateDir, "node", "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, d := range dirs {
		names[d.Name()] = ""
	}
	for _, p := range list {
		names[string(p.UID)] = p.Namespace + "/" + p.Name
	}
	return names, nil
}
