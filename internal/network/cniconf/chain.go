package cniconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/fairlead/fairlead/internal/core"
)

// ParseChain reads a network of somebody else's: the spec.config of a NAD or a
// file of a conf directory, a list or a single configuration. name serves
// where the configuration has none.
func ParseChain(config []byte, name string) (core.Chain, error) {
	if err := Strict(config); err != nil {
		return core.Chain{}, err
	}
	r := newReader(config)
	var c core.Chain
	if *r.err == nil {
		c = r.chain("", config, name)
	}
	if *r.err != nil {
		return core.Chain{}, *r.err
	}
	return c, nil
}

// File is a network as a file of a CNI configuration directory describes it.
type File struct {
	Chain core.Chain
	// Folder says that the files of the folder beside it that has the network's
	// name are further plugins (CNI spec 1.1, loadOnlyInlinedPlugins): to be
	// given to Append, in order.
	Folder bool
}

// ParseFile reads the file called name. Only a .conflist is a list with a
// folder; it may leave all plugins to it. With ErrNested the file is whole: it
// is the runtime's own, and no network for a pod.
func ParseFile(name string, data []byte) (File, error) {
	if err := Strict(data); err != nil {
		return File{}, err
	}
	r, f := newReader(data), File{}
	r.nested = new(error)
	list := filepath.Ext(name) == ".conflist"
	if list {
		f.Folder = !r.looseFlag("loadOnlyInlinedPlugins")
	}
	switch _, inlined := r.keys["plugins"]; {
	case *r.err != nil:
	case !list:
		f.Chain = r.chain("", data, "")
	case inlined:
		f.Chain = r.chain("", data, "")
	case f.Folder:
		f.Chain.Name = r.networkName("name", "")
		r.listHead(&f.Chain, data)
	default:
		r.refuse("plugins", "is missing, and loadOnlyInlinedPlugins is set")
	}
	if *r.err != nil {
		return File{}, *r.err
	}
	return f, *r.nested
}

// Append adds the plugin of one file behind those that c has.
func Append(c *core.Chain, data []byte) error {
	if err := Strict(data); err != nil {
		return err
	}
	r := newReader(data)
	p := r.plugin(data)
	if *r.err != nil {
		return *r.err
	}
	c.Plugins = append(c.Plugins, p)
	return nil
}

// looseFlag reads a boolean that may be written as a string, as libcni does.
func (r *reader) looseFlag(key string) bool {
	if s := strings.ToLower(string(r.keys[key])); s == `"true"` || s == `"false"` {
		return s == `"true"`
	}
	return r.flag(key)
}

// chain reads one list or single configuration standing at path.
func (r *reader) chain(path string, raw json.RawMessage, name string) core.Chain {
	in := r.at(path, raw)
	c := core.Chain{Name: in.networkName("name", name)}
	if _, isList := in.keys["plugins"]; !isList {
		c.Single, c.CNIVersion = true, in.version()
		c.Plugins = []core.Plugin{in.plugin(raw)}
		return c
	}
	in.listHead(&c, raw)
	in.each("plugins", func(path string, raw json.RawMessage) {
		c.Plugins = append(c.Plugins, r.at(path, raw).plugin(raw))
	})
	if len(c.Plugins) == 0 {
		in.refuse(join(path, "plugins"), "the list is empty")
	}
	return c
}

// listHead has libcni read the keys of a list: it negotiates among cniVersions
// and knows booleans that are written as strings.
func (r *reader) listHead(c *core.Chain, raw json.RawMessage) {
	if *r.err != nil {
		return
	}
	head, err := reheaded(raw, c.Name)
	if err != nil {
		r.refuse(join(r.path, "plugins"), "%v", err)
		return
	}
	list, err := libcni.NetworkConfFromBytes(head)
	if err != nil {
		*r.err = core.Errorf(core.CodeConfig, "%s: %w", place(r.path), err)
		return
	}
	c.DisableCheck, c.DisableGC, c.CNIVersion = list.DisableCheck, list.DisableGC, list.CNIVersion
	if c.CNIVersion == "" {
		c.CNIVersion = versionNone
	} else if err := versionKnown(c.CNIVersion); err != nil {
		*r.err = err
	}
}

// reheaded gives the list under its name and without its plugins, which we
// read ourselves: libcni decodes them into floats and so changes big numbers.
func reheaded(raw json.RawMessage, name string) ([]byte, error) {
	var head map[string]json.RawMessage
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	head["name"] = quoted
	delete(head, "plugins")
	delete(head, "loadOnlyInlinedPlugins") // libcni wants to see plugins with it
	return json.Marshal(head)
}

// ErrNested marks a network that is a meta-plugin's configuration of our own
// type, which would have us call ourselves.
var ErrNested = errors.New("a delegate cannot have delegates of its own")

// plugin reads one entry. One of our own types that names networks would nest
// us in ourselves.
func (r *reader) plugin(raw json.RawMessage) core.Plugin {
	p := core.Plugin{Type: r.pluginType("type"), Capabilities: r.flags("capabilities")}
	for _, key := range []string{"delegates", "clusterNetwork"} {
		at := r.err
		if r.nested != nil {
			at = r.nested
		}
		if p.Own() && r.has(key) && *at == nil {
			*at = core.Errorf(core.CodeConfig, "key %q: %w", join(r.path, key), ErrNested)
		}
	}
	p.Raw = append(json.RawMessage(nil), raw...)
	return p
}

// Inject is what the pod and the runtime add to a plugin's configuration.
type Inject struct {
	// RuntimeConfig values reach only plugins that declare the capability.
	RuntimeConfig map[string]json.RawMessage
	// CNIArgs are the element's `cni-args`, merged over the plugin's args.cni.
	CNIArgs map[string]json.RawMessage
	// DeviceID goes into deviceID and pciBusID.
	DeviceID string
}

// PluginConf is the complete standard input of plugin p of chain, except for
// prevResult (see WithPrev): name, cniVersion, runtimeConfig as far as p
// declares the capability, cni-args merged into args.cni, the device.
func PluginConf(chain core.Chain, p core.Plugin, in Inject) (json.RawMessage, error) {
	conf := map[string]json.RawMessage{}
	if err := json.Unmarshal(p.Raw, &conf); err != nil {
		return nil, core.Errorf(core.CodeConfig, "plugin %q of network %q: %w", p.Type, chain.Name, err)
	}
	if conf == nil { // Raw is `null`
		return nil, core.Errorf(core.CodeConfig, "plugin %q of network %q: want an object, got null", p.Type, chain.Name)
	}
	delete(conf, "prevResult")
	set := map[string]any{"name": chain.Name, "cniVersion": chain.CNIVersion, "type": p.Type}
	if in.DeviceID != "" {
		set["deviceID"], set["pciBusID"] = in.DeviceID, in.DeviceID
	}
	if rc := declared(p, in.RuntimeConfig); len(rc) > 0 {
		set["runtimeConfig"] = rc
	}
	if len(in.CNIArgs) > 0 {
		args, err := mergedArgs(conf["args"], in.CNIArgs)
		if err != nil {
			return nil, core.Errorf(core.CodeConfig, "plugin %q of network %q: %w", p.Type, chain.Name, err)
		}
		set["args"] = args
	}
	for k, v := range set {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, core.Errorf(core.CodeConfig, "plugin %q of network %q: key %q: %w", p.Type, chain.Name, k, err)
		}
		conf[k] = raw
	}
	return json.Marshal(conf)
}

// declared picks the runtimeConfig values of capabilities that p has.
func declared(p core.Plugin, all map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, has := range p.Capabilities {
		if v, ok := all[name]; ok && has {
			out[name] = v
		}
	}
	return out
}

// mergedArgs puts more over args.cni and keeps what else stands in args.
func mergedArgs(raw json.RawMessage, more map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	args, cni := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := into(raw, &args); err != nil {
		return nil, fmt.Errorf("key \"args\": want an object, got %s", kind(raw))
	}
	if err := into(args["cni"], &cni); err != nil {
		return nil, fmt.Errorf("key \"args.cni\": want an object, got %s", kind(args["cni"]))
	}
	for k, v := range more {
		cni[k] = v
	}
	merged, err := json.Marshal(cni)
	if err != nil {
		return nil, fmt.Errorf("key \"args.cni\": %w", err)
	}
	args["cni"] = merged
	return args, nil
}

// into decodes raw over what m holds; absent and null leave m alone.
func into(raw json.RawMessage, m *map[string]json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return json.Unmarshal(raw, m)
}

// WithPrev gives conf with prevResult set to prev; an empty prev leaves conf
// as it is.
func WithPrev(conf, prev json.RawMessage) (json.RawMessage, error) {
	if len(prev) == 0 {
		return conf, nil
	}
	return with(conf, map[string]json.RawMessage{"prevResult": prev})
}

// WithValid gives conf with the runtime's list of live attachments, under both
// names of the key (see Parse).
func WithValid(conf json.RawMessage, valid []core.Key) (json.RawMessage, error) {
	type attachment struct {
		Container string `json:"containerID"`
		IfName    string `json:"ifname"`
	}
	list := make([]attachment, 0, len(valid))
	for _, k := range valid {
		list = append(list, attachment(k))
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("list attachments: %w", err)
	}
	return with(conf, map[string]json.RawMessage{"cni.dev/valid-attachments": raw, "cni.dev/attachments": raw})
}

func with(conf json.RawMessage, more map[string]json.RawMessage) (json.RawMessage, error) {
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(conf, &keys); err != nil {
		return nil, core.Errorf(core.CodeConfig, "network configuration: %w", err)
	}
	if keys == nil {
		return nil, core.Errorf(core.CodeConfig, "network configuration: want an object, got null")
	}
	for k, v := range more {
		keys[k] = v
	}
	return json.Marshal(keys)
}
