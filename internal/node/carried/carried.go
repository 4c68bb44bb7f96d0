// Package carried knows which fields of a pod this node carries out. There is one
// table, by JSON path; what stands in it as refused keeps a pod from running,
// because running without it would be unsafe, and all else that is set and not
// carried out is told. A field that a newer Kubernetes adds is not carried out until
// the table says so. The package looks at nothing but the pod and what it is told of
// the machine.
package carried

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Machine is what decides whether some fields can be carried out.
type Machine struct {
	AppArmor   bool // the kernel enforces its profiles
	PodCgroups bool // pods have cgroups that we make
}

// Finding is a field that is set and not carried out.
type Finding struct {
	Path    string // as spec.containers[0].lifecycle.stopSignal
	Why     string
	Refused bool // the pod must not run without it
}

func (f Finding) String() string { return f.Path + ": " + f.Why }

// Check lists what of a pod is not carried out, refusals first. static tells a pod
// that no scheduler has seen.
func Check(pod *v1.Pod, static bool, m Machine) []Finding {
	c := check{static: static, machine: m}
	c.walk(reflect.ValueOf(pod.Spec), "spec", "")
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		switch {
		case a.Refused == b.Refused:
			return 0
		case a.Refused:
			return -1
		}
		return 1
	})
	return c.found
}

type check struct {
	static  bool
	machine Machine
	found   []Finding
}

// walk visits what is set below a value. at is its path for people, key its name in
// the table.
func (c *check) walk(v reflect.Value, at, key string) {
	if v.IsZero() {
		return
	}
	r := table[name(key)]
	switch {
	case r.listed():
		c.judge(r, v, at)
		return
	case leaf(v.Type()):
		c.judge(rule{how: warned, why: "this version does not know the field"}, v, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		c.walk(v.Elem(), at, key)
	case reflect.Struct:
		for i := range v.NumField() {
			child := join(key, jsonName(v.Type().Field(i)))
			path := at
			if child != key {
				path = at + "." + jsonName(v.Type().Field(i))
			}
			c.walk(v.Field(i), path, child)
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(v.Index(i), fmt.Sprintf("%s[%d]", at, i), key+"[]")
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			c.walk(v.MapIndex(k), fmt.Sprintf("%s[%s]", at, k), element(key, k.String()))
		}
	}
}

func (c *check) judge(r rule, v reflect.Value, at string) {
	why := r.why
	switch {
	case r.how == carriedOut, r.how == scheduler && !c.static, r.can != nil && r.can(c.machine):
		return
	case r.how == scheduler:
		why = "no scheduler has seen a pod of a file or URL"
	}
	if text := fmt.Sprint(reflect.Indirect(v)); v.Kind() != reflect.Struct && slices.Contains(r.except, text) {
		return
	}
	c.found = append(c.found, Finding{Path: at, Why: why, Refused: r.how == refused})
}

// leaf tells types that are one value to the table.
func leaf(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return t.PkgPath() != reflect.TypeFor[v1.Pod]().PkgPath() && !strings.HasSuffix(t.Name(), "Selector") &&
			!strings.HasSuffix(t.Name(), "Requirement") && !strings.HasSuffix(t.Name(), "ObjectMeta")
	case reflect.Slice, reflect.Map:
		return false
	}
	return true
}

func jsonName(f reflect.StructField) string {
	n, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return n
}

// join adds a field; one that is embedded has no name.
func join(key, field string) string {
	if key == "" || field == "" {
		return key + field
	}
	return key + "." + field
}

// element is a value of a map in the table: one of its own, or all.
func element(key, of string) string {
	if one := key + "{" + of + "}"; table[name(one)].listed() {
		return one
	}
	return key + "{}"
}

// name is the path under which the table has a field: fields of the same type have
// one place there.
func name(key string) string { return same.Replace(key) }

var same = strings.NewReplacer(
	"initContainers[]", "containers[]", "ephemeralContainers[]", "containers[]",
	"livenessProbe", "probe", "readinessProbe", "probe", "startupProbe", "probe",
	"postStart", "hook", "preStop", "hook",
)
