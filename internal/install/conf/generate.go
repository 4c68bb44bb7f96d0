package conf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Options are what a generated configuration depends on beside the default
// network's own.
type Options struct {
	// CNIVersion of the list; "" offers all that a runtime may take. The default
	// network keeps its own, since its results are converted, unless Force gives it
	// this one.
	CNIVersion string
	Force      bool
	// KeepName names the list after the default network: what hangs on that
	// name (leases, GC) stays where it is.
	KeepName bool
	// Socket is where the agent listens, "" for where the plugin looks anyway.
	Socket string
	// Capabilities are declared beside those of the default network; false
	// takes one of our own away.
	Capabilities map[string]bool
}

const defaultName = "fairlead"

// A runtime refuses the result of each ADD if its libcni is older than the
// version of the configuration: containerd 1.6 and 1.7 take 1.0.0 at the most.
// CNI 1.1, the first with GC and STATUS, stands in `cniVersions`: whoever speaks
// it takes the newest of these, and whoever does not knows no such key.
const oldest, newest = "1.0.0", "1.1.0"

// ErrNested says that a configuration calls us itself: as the default network
// it would never end.
var ErrNested = errors.New("it calls Fairlead or Multus itself")

var errNoName = errors.New("it has no name")

type plugin struct {
	Type         string            `json:"type"`
	Capabilities map[string]bool   `json:"capabilities,omitempty"`
	Socket       string            `json:"socket,omitempty"`
	Delegates    []json.RawMessage `json:"delegates,omitempty"`
}

type list struct {
	CNIVersion  string   `json:"cniVersion"`
	CNIVersions []string `json:"cniVersions,omitempty"`
	Name        string   `json:"name"`
	Plugins     []plugin `json:"plugins"`
}

// Own is a configuration with our own network as the default one. It opens host
// ports and holds to rates itself: no other plugin is needed.
func Own(o Options) ([]byte, error) {
	capabilities := map[string]bool{"portMappings": true, "bandwidth": true, cniconf.CapAnnotations: true}
	maps.Copy(capabilities, o.Capabilities)
	p := plugin{Type: "fairlead", Capabilities: capabilities, Socket: o.Socket}
	return encode(o.list(p))
}

// Around is a configuration that has the network of another one, master, as its
// default. The whole of it stands in ours: it stays what it is for every pod,
// also when its file is rewritten or removed, as plugins do that restart.
func Around(master []byte, o Options) ([]byte, error) {
	chain, err := readMaster(master)
	if err != nil {
		return nil, err
	}
	p := plugin{Type: "fairlead", Socket: o.Socket, Capabilities: map[string]bool{cniconf.CapAnnotations: true}}
	maps.Copy(p.Capabilities, o.Capabilities)
	for _, d := range chain.Plugins {
		for name, on := range d.Capabilities {
			if !on {
				continue
			}
			p.Capabilities[name] = true
		}
	}
	inner := json.RawMessage(master)
	if o.Force && o.CNIVersion != "" {
		if inner, err = withVersion(master, o.CNIVersion); err != nil {
			return nil, err
		}
	}
	p.Delegates = []json.RawMessage{inner}
	l := o.list(p)
	if o.KeepName {
		l.Name = chain.Name
	}
	return encode(l)
}

// readMaster refuses what could not be a default network.
func readMaster(b []byte) (core.Chain, error) {
	if nested(b) {
		return core.Chain{}, ErrNested
	}
	chain, err := cniconf.ParseChain(b, "")
	if err == nil && chain.Name == "" {
		err = errNoName
	}
	return chain, err
}

// nested tells that one of the plugins is a way to others: ours or Multus.
// kube-ovn is none, it is a network.
func nested(b []byte) bool {
	type typed struct {
		Type string `json:"type"`
	}
	var c struct {
		typed
		Plugins []typed `json:"plugins"`
	}
	_ = json.Unmarshal(b, &c) // what cannot be read is refused by ParseChain
	return slices.ContainsFunc(append(c.Plugins, c.typed), func(t typed) bool { return core.MetaType(t.Type) })
}

func withVersion(conf []byte, v string) (json.RawMessage, error) {
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(conf, &keys); err != nil {
		return nil, fmt.Errorf("set cniVersion: %w", err)
	}
	keys["cniVersion"] = json.RawMessage(`"` + v + `"`)
	return json.Marshal(keys)
}

func (o Options) list(p plugin) list {
	l := list{CNIVersion: o.CNIVersion, Name: defaultName, Plugins: []plugin{p}}
	if l.CNIVersion == "" {
		l.CNIVersion, l.CNIVersions = oldest, []string{oldest, newest}
	}
	return l
}

func encode(l list) ([]byte, error) {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return append(b, '\n'), nil
}

// asList gives a user's configuration as the list that our file must be. It
// refuses what no runtime could use: an empty file, or half of one that is being
// written.
func asList(b []byte) ([]byte, error) {
	var head struct {
		CNIVersion string            `json:"cniVersion,omitempty"`
		Name       string            `json:"name"`
		Plugins    []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, err
	}
	if head.Plugins == nil {
		head.Plugins = []json.RawMessage{b}
		var err error
		if b, err = json.Marshal(head); err != nil {
			return nil, err
		}
	}
	l, err := libcni.NetworkConfFromBytes(b)
	if err == nil && len(l.Plugins) == 0 {
		err = errors.New("the list has no plugins")
	}
	return b, err
}
