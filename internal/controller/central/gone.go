package central

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"
)

// chassisLook is the pause between two looks for chassis of nodes that are gone.
const chassisLook = 15 * time.Second

// forget removes the chassis of nodes that are no more, until ctx ends: others would
// keep tunnels to them, and a node that comes under another name with the address of
// one that is gone could not become a chassis. Only the member that leads the
// southbound cluster looks. A chassis goes when two looks in a row found no Node of it;
// one that comes back lives, without a Node, and stays. Those of other clusters stay while
// this one is joined to them.
func (m *member) forget(ctx context.Context) {
	var missed map[string]bool
	dropped := map[string]bool{}
	m.every(ctx, chassisLook, "removal of chassis whose nodes are gone", func(ctx context.Context) error {
		now, err := m.nodeless(ctx)
		for name := range now {
			if err == nil && missed[name] && !dropped[name] {
				m.Log.Info("chassis removed: its Node is gone", "chassis", name)
				_, err = m.call(ctx, m.sbctl("--if-exists", "chassis-del", name)...)
				dropped[name] = err == nil
			}
		}
		missed = now
		if err == nil {
			maps.DeleteFunc(dropped, func(name string, _ bool) bool { return !now[name] })
		}
		return err
	})
}

// every does something after each pause, until ctx ends, and says once why it failed.
func (m *member) every(ctx context.Context, pause time.Duration, what string, do func(context.Context) error) {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		err := do(ctx)
		if err == nil {
			said = ""
		} else if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			m.Log.Warn("failed: it is tried again", "part", what, "err", err)
		}
	}
}

// sbctl is a call that the member's own server answers.
func (m *member) sbctl(args ...string) []string {
	return append([]string{"ovn-sbctl", "--timeout=10", "--no-leader-only", "--db=" + m.socket(south)}, args...)
}

// nodeless are the chassis without a Node, none where this member does not lead.
func (m *member) nodeless(ctx context.Context) (map[string]bool, error) {
	leads, err := m.state(ctx, south)
	if err != nil || !leads {
		return nil, err
	}
	all, err := m.call(ctx, m.sbctl("--bare", "--no-headings", "--columns=name", "list", "Chassis")...)
	if err != nil {
		return nil, err
	}
	chassis := strings.Fields(all)
	if len(chassis) == 0 {
		return nil, nil
	}
	nodes, err := m.self.Chassis(ctx)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, errors.New("the API server has no Node at all")
	}
	var kept map[string]bool
	if !m.apart.Load() { // what other clusters have is no Node's
		if kept, err = m.remote(ctx); err != nil {
			return nil, err
		}
	}
	out := map[string]bool{}
	for _, name := range chassis {
		if !nodes[name] && !kept[name] {
			out[name] = true
		}
	}
	return out, nil
}
