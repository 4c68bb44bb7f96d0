package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/deploy"
)

// Values are the chart's values: what its values.yaml says, changed by a user.
type Values map[string]any

// Defaults are the values of the chart's values.yaml.
func Defaults() (Values, error) {
	b, err := fs.ReadFile(deploy.Chart, path.Join(deploy.ChartDir, "values.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read chart: %w", err)
	}
	v := Values{}
	if err := yaml.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("read values.yaml: %w", err)
	}
	return v, nil
}

// Merge lays a file of values over v, key by key as Helm does. Keys that the
// chart does not have are refused: a misspelt one would have no effect.
func (v Values) Merge(file []byte) error {
	over := map[string]any{}
	if err := yaml.UnmarshalStrict(file, &over); err != nil {
		return fmt.Errorf("values: %w", err)
	}
	return overlay(v, over, "")
}

// Set lays one value over v. expr is KEY.KEY=VALUE, the value in YAML; a dot
// that belongs to a key is written \. as for Helm.
func (v Values) Set(expr string) error {
	key, value, ok := strings.Cut(expr, "=")
	if !ok || key == "" {
		return fmt.Errorf("value %q is not KEY=VALUE", expr)
	}
	var over any
	if err := yaml.Unmarshal([]byte(value), &over); err != nil {
		return fmt.Errorf("value of %s: %w", key, err)
	}
	for _, k := range slices.Backward(keys(key)) {
		over = map[string]any{k: over}
	}
	tree, _ := over.(map[string]any) // it has a key at least
	return overlay(v, tree, "")
}

// keys takes a dotted path apart.
func keys(s string) []string {
	const dot = "\x00"
	parts := strings.Split(strings.ReplaceAll(s, `\.`, dot), ".")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], dot, ".")
	}
	return parts
}

// CheckActions refuses actions of the policies about requests that the API server
// refuses (admissionregistration/v1, ValidationAction): that would be said of a
// binding, after the other objects are there.
func (v Values) CheckActions() error {
	policies, _ := v["policies"].(map[string]any)
	requests, _ := policies["requests"].(map[string]any)
	list, _ := requests["actions"].([]any)
	const at = "policies.requests.actions"
	if on, _ := requests["enabled"].(bool); !on {
		return nil
	}
	seen := map[any]bool{}
	for _, a := range list {
		switch {
		case a != "Deny" && a != "Warn" && a != "Audit":
			return fmt.Errorf("%s: %v is none of Deny, Warn and Audit", at, a)
		case seen[a]:
			return fmt.Errorf("%s: %v stands twice", at, a)
		}
		seen[a] = true
	}
	switch {
	case len(list) == 0:
		return fmt.Errorf("%s: no action is given; policies.requests.enabled=false leaves the policies out", at)
	case seen["Deny"] && seen["Warn"]:
		return fmt.Errorf("%s: Deny and Warn exclude each other: who is refused is told why", at)
	}
	return nil
}

// ovn are the values of OVN, nil where it is not enabled.
func (v Values) ovn() map[string]any {
	ovn, _ := v["ovn"].(map[string]any)
	if on, _ := ovn["enabled"].(bool); !on {
		return nil
	}
	return ovn
}

// CheckOVN refuses a controller that would end at once, and members of central that
// no cluster of databases can have.
func (v Values) CheckOVN() error {
	ovn := v.ovn()
	if ovn == nil {
		return nil
	}
	central, _ := ovn["central"].(map[string]any)
	members, _ := central["members"].(map[string]any)
	switch {
	case len(members) == 0 && ovn["nb"] == "":
		return errors.New("ovn.central.members: with ovn.enabled they are the nodes of OVN's central part, NODE: ADDRESS; or ovn.nb names the northbound database of one that is there")
	case len(members) > 0 && (ovn["nb"] != "" || ovn["remote"] != ""):
		return errors.New("ovn.nb and ovn.remote are of a central part that is there already: they and ovn.central.members exclude each other")
	case len(members) > 0 && len(members)%2 == 0:
		return fmt.Errorf("ovn.central.members: %d members stand one failure fewer than %d: take one, three or five", len(members), len(members)+1)
	}
	seen := map[netip.Addr]string{}
	for _, node := range slices.Sorted(maps.Keys(members)) {
		text := fmt.Sprint(members[node])
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return fmt.Errorf("ovn.central.members.%s: %q is no address", node, text)
		case seen[addr] != "":
			return fmt.Errorf("ovn.central.members: %s and %s have one address, %s", seen[addr], node, addr)
		}
		seen[addr] = node
	}
	return nil
}

// free are the values whose keys are the user's own.
var free = []string{
	"flags", "config", "serviceAccount.annotations", "resources", "updateStrategy",
	"nodeSelector", "affinity", "ovn.central.members", "podAnnotations", "podLabels",
}

// overlay changes base, which stands at the path at, by over.
func overlay(base, over map[string]any, at string) error {
	for _, k := range slices.Sorted(maps.Keys(over)) {
		here := strings.TrimPrefix(at+"."+k, ".")
		old, known := base[k]
		if !known && !isFree(at) {
			return fmt.Errorf("there is no value %s", here)
		}
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := over[k].(map[string]any)
		switch {
		case wasMap && isMap:
			if err := overlay(oldMap, newMap, here); err != nil {
				return err
			}
		case known && wasMap && !isFree(here):
			return fmt.Errorf("value %s has keys, it cannot be %v", here, over[k])
		case over[k] == nil: // Helm's way to take a key away
			delete(base, k)
		default:
			base[k] = over[k]
		}
	}
	return nil
}

// isFree tells that a path is one of the free values or lies below one.
func isFree(at string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return at == f || strings.HasPrefix(at, f+".") })
}
