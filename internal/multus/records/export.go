package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// File is a file that Multus needs for a container. Data nil: it is Multus' own,
// which has to be where it was.
type File struct {
	Path string
	Data []byte
}

// ErrOnlyOurs says that Multus could not detach a container.
var ErrOnlyOurs = errors.New("only Fairlead can detach it")

// Export are the files from which Multus, with its cniDir at dir, detaches what
// r holds: the form that Of reads (Multus v4.3, types.DelegateNetConf; libcni
// v1.3, cachedInfo). An error wraps ErrOnlyOurs. beside are the container's other
// records: Multus has one file for them all.
func Export(r core.Record, beside []core.Record, dir string) ([]File, error) {
	kept := func(r core.Record) bool { return Inherited(r) && r.AddCall == nil } // else its networks may have changed since
	beside = slices.DeleteFunc(slices.Clone(beside), func(o core.Record) bool { return o.Key == r.Key || foreignOnly(o) != nil })
	if kept(r) && !slices.ContainsFunc(beside, func(o core.Record) bool { return !kept(o) }) {
		var out []File
		for _, path := range r.FormerFiles {
			out = append(out, File{Path: path})
		}
		return out, nil
	}
	if err := foreignOnly(r); err != nil {
		return nil, err
	}
	list, out, err := exportRecord(r, dir, len(beside) > 0)
	for _, o := range beside {
		more, _, oerr := exportRecord(o, dir, true)
		list, err = append(list, more...), errors.Join(err, oerr)
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b delegate) int { return strings.Compare(a.record, b.record) })
	data, err := json.Marshal(list)
	return append(out, File{Path: filepath.Join(dir, r.Key.Container), Data: data}), err
}

// exportRecord gives the networks of a record as elements of Multus' file and
// libcni's files about them. named: Multus is to be told each interface's name,
// for the runtime names only one.
func exportRecord(r core.Record, dir string, named bool) (list []delegate, out []File, err error) {
	for from := 0; from < len(r.Specs); {
		to := from + 1
		for to < len(r.Specs) && r.Specs[to].Key == r.Specs[from].Key && r.Specs[to].Network == r.Specs[from].Network {
			to++
		}
		if calls := execs(r.Specs[from:to]); len(calls) > 0 {
			d, f, err := exportChain(r, r.Specs[from], calls, dir)
			if err != nil {
				return nil, nil, err
			}
			d.record = r.Key.IfName
			if named {
				d.IfnameRequest = r.Specs[from].Key.IfName
			}
			list, out = append(list, d), append(out, f)
		}
		from = to
	}
	return list, out, nil
}

// foreignOnly is nil for a record that foreign plugins alone have made.
func foreignOnly(r core.Record) error {
	if r.Phase != core.Added || len(r.Parts) > 0 || len(r.Specs) == 0 {
		return fmt.Errorf("%w: its ADD or DEL has not ended", ErrOnlyOurs)
	}
	for _, l := range r.Leases {
		return fmt.Errorf("%w: addresses of subnet %s are Fairlead's", ErrOnlyOurs, l.Subnet)
	}
	for _, s := range r.Specs {
		switch kind := s.Kind(); {
		case kind == core.KindNIC:
			return fmt.Errorf("%w: %s is an interface of its own", ErrOnlyOurs, s.Key.IfName)
		case kind == core.KindDelegate && s.Exec.DevInfo != nil:
			return fmt.Errorf("%w: %s has a device", ErrOnlyOurs, s.Key.IfName)
		}
	}
	return nil
}

func execs(specs []core.Spec) (out []core.Exec) {
	for _, s := range specs {
		if s.Kind() == core.KindDelegate {
			out = append(out, *s.Exec)
		}
	}
	return out
}

// delegate is an element of Multus' list.
type delegate struct {
	Conf, ConfList json.RawMessage
	Name           string
	IfnameRequest  string `json:"ifnameRequest,omitempty"`
	Bytes          []byte
	record         string // the interface of the runtime's that it came with
}

// cached is libcni's file about one network.
type cached struct {
	Kind        string          `json:"kind"`
	ContainerID string          `json:"containerId"`
	Config      []byte          `json:"config"`
	IfName      string          `json:"ifName"`
	NetworkName string          `json:"networkName"`
	Netns       string          `json:"netns,omitempty"`
	Args        [][2]string     `json:"cniArgs,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
}

// exportChain gives a network as Multus and libcni keep it. Its plugins have
// their runtimeConfig in them already: Multus adds none to it.
func exportChain(r core.Record, first core.Spec, calls []core.Exec, dir string) (delegate, File, error) {
	last := calls[len(calls)-1]
	list := map[string]any{"name": last.Network, "cniVersion": last.CNIVersion, "disableCheck": last.NoCheck}
	var plugins []map[string]json.RawMessage
	for _, call := range calls {
		keys := map[string]json.RawMessage{}
		if err := json.Unmarshal(call.Conf, &keys); err != nil {
			return delegate{}, File{}, fmt.Errorf("network %s: %w", first.Network, err)
		}
		delete(keys, "name")
		delete(keys, "cniVersion")
		plugins = append(plugins, keys)
	}
	list["plugins"] = plugins
	conf, err := json.Marshal(list)
	if err != nil {
		return delegate{}, File{}, fmt.Errorf("network %s: %w", first.Network, err)
	}
	d := delegate{Conf: json.RawMessage(`{}`), ConfList: conf, Name: first.Network, Bytes: conf}
	if first.Key != r.Key { // that one has the name which the runtime gives
		d.IfnameRequest = first.Key.IfName
	}
	c := cached{
		Kind: "cniCacheV1", ContainerID: r.Key.Container, Config: conf, IfName: first.Key.IfName,
		NetworkName: last.Network, Netns: r.Netns.Path, Result: last.Prev,
	}
	for _, pair := range strings.Split(last.Args, ";") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			c.Args = append(c.Args, [2]string{k, v})
		}
	}
	data, err := json.Marshal(c)
	return d, File{Path: filepath.Join(dir, "results", cniconf.LibcniCacheName(last.Network, first.Key)), Data: data}, err
}
