package annotation

import (
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// controlled is for names that a controller acts upon. Without one they would be
// promises that nobody keeps.
func controlled(n *Notes, _ *Requested, key, value string) {
	if !n.Controlled {
		n.refuse(key, value, "needs a controller and OVN (docs/cluster.md): without them nobody carries it out")
		return
	}
	n.names(key, value)
}

// names reads a list of objects' names.
func (n *Notes) names(key, value string) (out []string) {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !IsName(name) {
			n.refuse(key, value, "names %q, which is no object's name", Clip(name))
			return nil
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Objects are what only a controller acts upon: names of objects.
type Objects struct {
	SecurityGroups []string
	Vip            string   // "" for none
	AAPs           []string // Vips
}

// Objects reads the names of objects, each list sorted.
func (n *Notes) Objects() (o Objects, err error) {
	for field, into := range map[string]*[]string{v1.FieldSecurityGroups: &o.SecurityGroups, v1.FieldAAPs: &o.AAPs} {
		if key, value, ok := n.get(field); ok {
			*into = n.names(key, value)
		}
	}
	if key, value, ok := n.get(v1.FieldVip); ok {
		if list := n.names(key, value); len(list) > 1 {
			n.refuse(key, value, "names several Vips: an interface has one address of a family")
		} else if len(list) == 1 {
			o.Vip = list[0]
		}
	}
	return o, n.err
}

// IsObject tells that a key names objects that only a controller acts upon.
func IsObject(key string) bool {
	return slices.ContainsFunc([]string{v1.FieldSecurityGroups, v1.FieldVip, v1.FieldAAPs}, func(field string) bool {
		_, at, ok := strings.Cut(key, v1.ProviderSuffix)
		return ok && (at == field || strings.HasPrefix(at, field+"."))
	})
}
