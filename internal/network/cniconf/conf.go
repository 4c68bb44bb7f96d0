package cniconf

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/fairlead/fairlead/internal/core"
)

// Parse reads the network configuration that a runtime sent on standard
// input. It serves our own types (core.OwnType), and any other type
// whose `ipam.type` is one of ours (Kube-OVN as the IPAM of macvlan and its
// like, sdn.md section 1): then provider and routes come from `ipam`. Keys it
// does not know are allowed, values of a wrong type are not.
func Parse(stdin []byte) (core.Conf, error) {
	if err := Strict(stdin); err != nil {
		return core.Conf{}, err
	}
	r := newReader(stdin)
	c := core.Conf{
		CNIVersion:    r.version(),
		Name:          r.networkName("name", ""),
		Type:          r.pluginType("type"),
		Capabilities:  r.flags("capabilities"),
		RuntimeConfig: r.object("runtimeConfig"),
		Annotations:   r.podAnnotations(),
		DNS:           r.dns("dns"),
		Raw:           append(json.RawMessage(nil), stdin...),
	}
	r.identity(&c)
	r.prevResult(&c)
	r.valid(&c)
	r.meta(&c)
	r.checkAccepted()
	if *r.err != nil {
		return core.Conf{}, *r.err
	}
	return c, nil
}

// identity reads what tells our own networks apart: from the configuration
// when the type is ours, from its `ipam` when we are only asked for addresses.
func (r *reader) identity(c *core.Conf) {
	from := r
	if c.Type != "" && !core.OwnType(c.Type) {
		from = r.in("ipam")
		if t := from.text("type"); !core.OwnType(t) {
			r.refuse("type", "%q is none of fairlead, kube-ovn, multus, multus-shim, and ipam.type %q is not either", c.Type, t)
		}
	}
	if from.has("provider") && from.text("provider") != "" {
		c.Provider = from.networkName("provider", "")
	}
	c.Routes = from.routes("routes")
}

func (r *reader) prevResult(c *core.Conf) {
	if !r.has("prevResult") {
		return
	}
	raw := r.keys["prevResult"]
	if _, err := decodeResult(raw, c.CNIVersion); err != nil {
		r.refuse("prevResult", "%v", err)
		return
	}
	c.PrevResult = raw
}

// valid reads the list of live attachments. The spec's name of the key and the
// one that libcni sent first (containernetworking/cni#1101) are both known.
// null is no list: libcni writes it where its caller gave none, and every
// attachment of the node lies between that and an empty one.
func (r *reader) valid(c *core.Conf) {
	key := "cni.dev/valid-attachments"
	if _, ok := r.keys[key]; !ok {
		key = "cni.dev/attachments"
	}
	if c.HasValid = r.has(key); !c.HasValid {
		return
	}
	r.each(key, func(path string, raw json.RawMessage) {
		in := r.at(path, raw)
		k := core.Key{Container: in.text("containerID"), IfName: in.text("ifname")}
		if k.Container == "" || k.IfName == "" {
			r.refuse(path, "containerID and ifname are both needed")
		}
		c.Valid = append(c.Valid, k)
	})
}

// ErrNoValid refuses a GC that does not say what lives.
var ErrNoValid = &core.Error{
	Code: core.CodeConfig, Msg: "cni.dev/valid-attachments is missing or null: nothing is removed",
	Details: "without the list every attachment of the node would be garbage, and a runtime that means that sends []; " +
		"`fairlead gc` removes what belongs to namespaces that are gone",
}

// checkAccepted checks the types of keys that the plugin reads (socket) or
// another part of a configuration.
func (r *reader) checkAccepted() {
	for _, key := range []string{"socket", "server_socket", "daemonSocketDir"} {
		r.text(key)
	}
	r.object("ipam")
}

// dir reads an absolute path; "" is none.
func (r *reader) dir(key string) string {
	d := r.text(key)
	if d != "" && !filepath.IsAbs(d) {
		r.refuse(join(r.path, key), "%q is not an absolute path", d)
	}
	return d
}

// pluginType reads a plugin's type, which is also the name of its binary and
// so must stay inside the directory that is searched.
func (r *reader) pluginType(key string) string {
	t := r.text(key)
	switch {
	case *r.err != nil:
	case t == "":
		r.refuse(join(r.path, key), "is missing")
	case strings.ContainsAny(t, "/\x00") || t == "." || t == "..":
		r.refuse(join(r.path, key), "%q is not a plain file name", t)
	}
	return t
}

// versionKnown refuses a CNI version that we cannot speak.
func versionKnown(v string) error {
	if e := (&version.Reconciler{}).Check(v, version.All); e != nil {
		return &core.Error{Code: core.CodeVersion, Msg: "key \"cniVersion\": incompatible CNI version", Details: e.Details()}
	}
	return nil
}

// ParseArgs reads CNI_ARGS: KEY=VALUE pairs joined by ';'. Multus v4.3 repeats
// what it got behind what it says itself: the same thing may be said twice, two
// things may not.
func ParseArgs(s string) (map[string]string, error) {
	args := map[string]string{}
	for _, pair := range strings.Split(s, ";") {
		if pair == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, core.Errorf(core.CodeEnv, "CNI_ARGS: %q is not KEY=VALUE", pair)
		}
		if former, twice := args[k]; twice && former != v && k != "IgnoreUnknown" {
			return nil, core.Errorf(core.CodeEnv, "CNI_ARGS: %q stands twice, with two values", k)
		}
		args[k] = v
	}
	return args, nil
}
