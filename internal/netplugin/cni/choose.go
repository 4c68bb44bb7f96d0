package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/fairlead/fairlead/internal/install/explain"
)

// network is a configuration that pods can be attached by.
type network struct {
	file  string
	list  *libcni.NetworkConfigList
	stamp stamp
	// caps are the capabilities that some plugin of the list declares.
	caps map[string]bool
}

// stamp tells whether a file has changed.
type stamp struct {
	size     int64
	modified time.Time
}

// errNone is why a folder gives no network.
var errNone = errors.New("no network configuration")

// current is the network in force. The folder is looked at each time: that costs
// less than being late by a watch, which only spares an ADD the first look at a
// new file.
func (p *Plugin) current(ctx context.Context) (*network, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	got, passed, err := p.choose(ctx, p.last)
	p.tell(got, passed, err)
	if err == nil {
		p.last = got
		return got, nil
	}
	if p.last != nil {
		return p.last, nil
	}
	return nil, err
}

// tell logs what was found, once. The caller has the lock.
func (p *Plugin) tell(got *network, passed []error, err error) {
	reasons := errors.Join(passed...)
	text := fmt.Sprint(got, reasons, err)
	if got != nil {
		text = fmt.Sprint(got.file, got.stamp, reasons)
	}
	if text == p.said {
		return
	}
	p.said = text
	switch {
	case err == nil && reasons == nil:
		p.conf.Log.Info("network configuration in force", "file", got.file, "network", got.list.Name)
	case err == nil:
		p.conf.Log.Warn("network configuration in force, others were passed over", "file", got.file, "network", got.list.Name, "err", reasons)
	case p.last != nil:
		p.conf.Log.Warn("no valid network configuration, the last good one stays in force", "file", p.last.file, "network", p.last.list.Name, "err", err)
	default:
		p.conf.Log.Warn("no network configuration yet", "err", err)
	}
}

// choose gives the first valid configuration by name, and of each file before it
// what is wrong with it. old is given back for a file that has not changed, so
// that its plugins are not asked again.
func (p *Plugin) choose(ctx context.Context, old *network) (got *network, passed []error, err error) {
	files, err := explain.Candidates(p.conf.ConfDir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNone, err)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			passed = append(passed, err)
			continue
		}
		s := stamp{st.Size(), st.ModTime()}
		if old != nil && old.file == f && old.stamp == s && p.missing(old) == nil {
			return old, passed, nil
		}
		got, err := p.load(ctx, f)
		if err != nil {
			passed = append(passed, fmt.Errorf("%s: %w", f, err))
			continue
		}
		got.stamp = s
		return got, passed, nil
	}
	return nil, nil, errors.Join(append([]error{fmt.Errorf("%w in %s", errNone, p.conf.ConfDir)}, passed...)...)
}

// missing says which of a network's plugins is no more where it was: whoever takes
// one away means it.
func (p *Plugin) missing(n *network) error {
	for _, part := range n.list.Plugins {
		if _, err := invoke.FindInPath(part.Network.Type, p.conf.BinDirs); err != nil {
			return err
		}
	}
	return nil
}

// load reads one file and asks its plugins for the version that it is written in.
func (p *Plugin) load(ctx context.Context, file string) (*network, error) {
	list, err := explain.Read(file)
	if err == nil {
		err = explain.ValidName(list)
	}
	if err == nil {
		err = inline(list)
	}
	if err != nil {
		return nil, err
	}
	if _, err := p.cni.ValidateNetworkList(ctx, list); err != nil {
		return nil, err
	}
	return &network{file: file, list: list, caps: capabilities(list)}, nil
}

// inline makes the list's bytes say all its plugins: libcni takes some from a
// folder beside the file (CNI spec 1.1, loadOnlyInlinedPlugins), and by the bytes
// pods are detached, whatever is in that folder then.
func inline(list *libcni.NetworkConfigList) error {
	var doc map[string]json.RawMessage
	var inside []json.RawMessage
	err := json.Unmarshal(list.Bytes, &doc)
	if err == nil && doc["plugins"] != nil {
		err = json.Unmarshal(doc["plugins"], &inside)
	}
	if err != nil || len(inside) == len(list.Plugins) {
		return err
	}
	inside = nil
	for _, p := range list.Plugins {
		inside = append(inside, p.Bytes)
	}
	if doc["plugins"], err = json.Marshal(inside); err != nil {
		return err
	}
	doc["loadOnlyInlinedPlugins"] = json.RawMessage("true")
	list.Bytes, err = json.Marshal(doc)
	return err
}

func capabilities(list *libcni.NetworkConfigList) map[string]bool {
	out := map[string]bool{}
	for _, p := range list.Plugins {
		for c, on := range p.Network.Capabilities {
			out[c] = out[c] || on
		}
	}
	return out
}
