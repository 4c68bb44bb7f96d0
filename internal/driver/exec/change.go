package exec

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

var _ driver.Changer = (*Driver)(nil)

// Change implements driver.Changer. A program has no verb for it: its pods are to be
// made anew.
func (d *Driver) Change(ctx context.Context, r driver.Run, s core.Spec) error {
	ns, err := netns.Verify(s.Netns)
	if err != nil {
		return fmt.Errorf("change %s: %w", s.Key, err)
	}
	defer func() { _ = ns.Close() }()
	p, ok := d.inside(s.Exec.Type, s.Exec.Path, s.Exec.Conf, true).(driver.PluginChanger)
	if !ok {
		return core.Reasoned(core.CodeValue, core.ReasonRestartNeeded, "plugin %q changes nothing of a pod that runs", s.Exec.Type)
	}
	v := invocation{run: r, exec: *s.Exec, key: s.Key, netns: s.Netns}
	if err := d.proveConf(v); err != nil {
		return fmt.Errorf("change %s: %w", s.Key, err)
	}
	done := r.Time.Step("inproc." + s.Exec.Type + ".CHANGE")
	err = v.change(ctx, p)
	done(err)
	if err != nil {
		return fmt.Errorf("change %s: %w", s.Key, err)
	}
	return nil
}

// change asks the Plugin; a panic is an error.
func (v invocation) change(ctx context.Context, p driver.PluginChanger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	call := driver.PluginCall{Conf: v.exec.Conf, Key: v.key, Netns: v.netns, Args: v.exec.Args, Time: v.run.Time}
	return p.Change(ctx, call, formerOf(v.exec))
}

// formerOf is the configuration that is in force where a change is refused.
func formerOf(x core.Exec) json.RawMessage {
	if x.Former != nil {
		return x.Former
	}
	return x.Conf
}
