package cniconf

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/fairlead/fairlead/internal/core"
)

// reader takes typed values out of one JSON object. The first refusal stays in
// err, which all readers of one document share, and later reads give zero
// values: a parser reads everything first and asks once at the end.
type reader struct {
	path string // of the object, "" for the document
	keys map[string]json.RawMessage
	err  *error
	// nested takes ErrNested, where it does not end the reading; likewise shared.
	nested *error
}

// newReader opens a document; it must be an object.
func newReader(data []byte) *reader {
	r := &reader{err: new(error)}
	if kind(data) != "an object" {
		*r.err = core.Errorf(core.CodeDecode, "not a JSON object but %s", kind(data))
		return r
	}
	if err := json.Unmarshal(data, &r.keys); err != nil {
		*r.err = core.Errorf(core.CodeDecode, "not JSON: %w", err)
	}
	return r
}

// at opens an object that stands in r's document under path.
func (r *reader) at(path string, raw json.RawMessage) *reader {
	in := &reader{path: path, err: r.err, nested: r.nested}
	if *r.err != nil || raw == nil {
		return in
	}
	if kind(raw) != "an object" {
		r.refuse(path, "want an object, got %s", kind(raw))
		return in
	}
	if err := json.Unmarshal(raw, &in.keys); err != nil {
		r.refuse(path, "%v", err)
	}
	return in
}

// refuse records a code 7 that names the key, unless one is there already.
func (r *reader) refuse(path, format string, args ...any) {
	if *r.err == nil {
		*r.err = core.Errorf(core.CodeConfig, "key %q: %s", path, fmt.Sprintf(format, args...))
	}
}

// has tells that key is there and not null, which CNI libraries write for
// "none".
func (r *reader) has(key string) bool {
	raw, ok := r.keys[key]
	return ok && string(raw) != "null"
}

// get decodes key as T, zero where it is absent; want says in words what T is.
func get[T any](r *reader, key, want string) T {
	var v, zero T
	if *r.err != nil || !r.has(key) {
		return zero
	}
	if err := json.Unmarshal(r.keys[key], &v); err != nil {
		r.refuse(join(r.path, key), "want %s, got %s", want, kind(r.keys[key]))
		return zero
	}
	return v
}

func (r *reader) text(key string) string    { return get[string](r, key, "a string") }
func (r *reader) flag(key string) bool      { return get[bool](r, key, "true or false") }
func (r *reader) texts(key string) []string { return get[[]string](r, key, "an array of strings") }
func (r *reader) list(key string) []json.RawMessage {
	return get[[]json.RawMessage](r, key, "an array")
}

func (r *reader) object(key string) map[string]json.RawMessage {
	return get[map[string]json.RawMessage](r, key, "an object")
}

func (r *reader) flags(key string) map[string]bool {
	return get[map[string]bool](r, key, "an object of true and false")
}

// in opens the object under key; an absent one reads as empty.
func (r *reader) in(key string) *reader {
	if !r.has(key) {
		return r.at(join(r.path, key), nil)
	}
	return r.at(join(r.path, key), r.keys[key])
}

// each opens every element of the array of objects under key.
func (r *reader) each(key string, fn func(path string, raw json.RawMessage)) {
	for i, raw := range r.list(key) {
		fn(fmt.Sprintf("%s[%d]", join(r.path, key), i), raw)
	}
}

// networkName reads a name that follows CNI's rule for network names, which is
// also safe as part of a path.
func (r *reader) networkName(key, fallback string) string {
	name := r.text(key)
	if name == "" && !r.has(key) {
		name = fallback
	}
	if err := utils.ValidateNetworkName(name); err != nil {
		r.refuse(join(r.path, key), "%q is not a network name (letters, digits, '_', '.', '-')", name)
	}
	return name
}

// version reads cniVersion; what is absent means 0.1.0.
func (r *reader) version() string {
	v := r.text("cniVersion")
	if v == "" {
		return versionNone
	}
	if err := versionKnown(v); err != nil && *r.err == nil {
		*r.err = err
	}
	return v
}

// routes reads [{dst, gw}]; a gw that is absent or empty means on-link.
func (r *reader) routes(key string) []core.Route {
	var out []core.Route
	r.each(key, func(path string, raw json.RawMessage) {
		in := r.at(path, raw)
		dst, gw := in.text("dst"), in.text("gw")
		if *r.err != nil {
			return
		}
		p, err := netip.ParsePrefix(dst)
		if err != nil {
			r.refuse(path+".dst", "%q is not a network in CIDR form", dst)
			return
		}
		route := core.Route{Dst: p.Masked()}
		if gw != "" {
			if route.GW, err = netip.ParseAddr(gw); err != nil || route.GW.Is4() != p.Addr().Is4() {
				r.refuse(path+".gw", "%q is not an address of the family of %s", gw, dst)
				return
			}
		}
		out = append(out, route)
	})
	return out
}

// dns reads the resolver part.
func (r *reader) dns(key string) core.DNS {
	in := r.in(key)
	return core.DNS{
		Nameservers: in.texts("nameservers"),
		Domain:      in.text("domain"),
		Search:      in.texts("search"),
		Options:     in.texts("options"),
	}
}

// kind says in words what a JSON value is, by its first character.
func kind(raw []byte) string {
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return "an object"
		case '[':
			return "an array"
		case '"':
			return "a string"
		case 't', 'f':
			return "a boolean"
		case 'n':
			return "null"
		}
		return "a number"
	}
	return "nothing"
}
