// Package launcher shows the controller the launcher pods of a KubeVirt virtual machine
// as one pod of the machine's name, and tells them all what that pod is told: so the
// machine has one address and one logical port, whatever pod runs it, and two pods have
// them while it moves from one node to another. It must not know what a pod is given.
package launcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// view is a world with one pod for each virtual machine. A pod that has a machine's
// name itself, and was there before its launchers, keeps the name; they wait.
type view struct {
	object.World
	pods object.Lister[object.Pod] // as they are
	gone func(context.Context, core.Pod) (bool, error)

	mu  sync.Mutex
	of  map[name]string          // machine by launcher
	all map[name]map[string]bool // launchers by machine
}

type name struct{ namespace, name string }

// World is a world of which the launcher pods of a machine are one pod. It is the same
// where there are no machines.
func World(w object.World) object.World {
	if w.Machines == nil {
		return w
	}
	v := &view{World: w, pods: w.Pods, gone: w.Claims.Gone, of: map[name]string{}, all: map[name]map[string]bool{}}
	follow := w.Follow
	w.Follow = func(ctx context.Context, changed func(object.Key)) error {
		if err := follow(ctx, func(k object.Key) { changed(v.heard(k)) }); err != nil {
			return err
		}
		for _, p := range v.pods.List() {
			v.heard(object.KindPod.Named(p.Namespace, p.Name))
		}
		return nil
	}
	w.Pods, w.Claims.Gone = v, v.isGone
	w.Outcomes = outcomes{w.Outcomes, v}
	return w
}

// launches is the machine that a pod runs, "" for none.
func launches(p object.Pod) string {
	if p.Owner.Kind != object.OwnerInstance {
		return ""
	}
	return p.Owner.Name
}

// heard is the key of what changed: of a launcher that of its machine's pod.
func (v *view) heard(k object.Key) object.Key {
	if k.Kind != object.KindPod {
		return k
	}
	p, there := v.pods.Get(k.Namespace, k.Name)
	v.mu.Lock()
	defer v.mu.Unlock()
	pod := name{k.Namespace, k.Name}
	was, is := v.of[pod], launches(p)
	switch {
	case there && is != "":
		machine := name{k.Namespace, is}
		if v.of[pod] = is; v.all[machine] == nil {
			v.all[machine] = map[string]bool{}
		}
		v.all[machine][k.Name] = true
		return k.Kind.Named(k.Namespace, is)
	case was != "":
		machine := name{k.Namespace, was}
		delete(v.of, pod)
		if delete(v.all[machine], k.Name); len(v.all[machine]) == 0 {
			delete(v.all, machine)
		}
		return k.Kind.Named(k.Namespace, was)
	}
	return k
}

// launchers are the pods that a machine's pod stands for, the one that runs it first:
// those of its oldest instance that has not ended, or of one that has where all have.
func (v *view) launchers(machine name) (out []object.Pod) {
	v.mu.Lock()
	names := slices.Collect(maps.Keys(v.all[machine]))
	v.mu.Unlock()
	for _, n := range names {
		if p, ok := v.pods.Get(machine.namespace, n); ok && launches(p) == machine.name {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.SortFunc(out, func(a, b object.Pod) int {
		return cmp.Or(compare(a.Done, b.Done), a.Born.Compare(b.Born), cmp.Compare(a.Name, b.Name))
	})
	if p, ok := v.pods.Get(machine.namespace, machine.name); ok && launches(p) == "" && !p.Done && p.Born.Before(out[0].Born) {
		return nil
	}
	return slices.DeleteFunc(out, func(p object.Pod) bool { return p.Done != out[0].Done || p.Owner != out[0].Owner })
}

// compare has false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Get implements object.Lister.
func (v *view) Get(namespace, pod string) (object.Pod, bool) {
	if all := v.launchers(name{namespace, pod}); len(all) > 0 {
		return v.merged(all), true
	}
	p, ok := v.pods.Get(namespace, pod)
	if !ok || launches(p) != "" {
		return object.Pod{}, false
	}
	return p, true
}

// List implements object.Lister.
func (v *view) List() (out []object.Pod) {
	v.mu.Lock()
	machines := slices.Collect(maps.Keys(v.all))
	v.mu.Unlock()
	hidden := map[name]bool{}
	for _, m := range machines {
		if all := v.launchers(m); len(all) > 0 {
			hidden[m] = true
			out = append(out, v.merged(all))
		}
	}
	for _, p := range v.pods.List() {
		if launches(p) == "" && !hidden[name{p.Namespace, p.Name}] {
			out = append(out, p)
		}
	}
	return out
}

// merged is the pod that stands for launchers. Its UID is the instance's, which they
// have in common.
func (v *view) merged(all []object.Pod) object.Pod {
	p := all[0]
	instance := p.Owner
	p.Name, p.UID, p.Machine, p.Nodes = instance.Name, instance.UID, true, nil
	m, there, known := v.Machines.Get(p.Namespace, instance.Name)
	p.Unsure = !known
	if there {
		p.Owner = object.Owner{Kind: string(object.KindMachine), Name: m.Name, UID: m.UID}
	}
	versions := make([]string, 0, len(all))
	for i, one := range all {
		versions = append(versions, one.UID+"="+one.Version)
		if one.Node != "" {
			p.Nodes = append(p.Nodes, one.Node)
		}
		if len(p.IPs) == 0 {
			p.IPs = one.IPs
		}
		if i > 0 {
			p.Annotations, p.Ending = common(p.Annotations, one.Annotations), p.Ending && one.Ending
		}
	}
	p.Version = strings.Join(versions, ",")
	return p
}

// common are annotations of one pod without those of interfaces that another does not
// have as well; what one of them was told that has no address is told.
func common(of, other map[string]string) map[string]string {
	out := maps.Clone(of)
	maps.DeleteFunc(out, func(key, value string) bool {
		return strings.Contains(key, v1.ProviderSuffix) && other[key] != value
	})
	if why := other[v1.AnnNoAddress]; why != "" && out != nil {
		out[v1.AnnNoAddress] = why
	}
	return out
}

// isGone implements claim.Reader.Gone: a machine's pod is gone when its launchers are.
func (v *view) isGone(ctx context.Context, pod core.Pod) (bool, error) {
	if is, err := v.gone(ctx, pod); err != nil || !is {
		return is, err
	}
	all, err := v.Machines.Launchers(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(all, func(p object.Pod) bool {
		return launches(p) == pod.Name && !p.Done && (pod.UID == "" || p.Owner.UID == pod.UID)
	}), nil
}

// outcomes tell all launchers what is told of a machine's pod.
type outcomes struct {
	object.Outcomes
	view *view
}

// each does something for each launcher that an object stands for, and for any other
// object itself. What is gone of several is no error.
func (o outcomes) each(at object.Object, do func(object.Object) error) error {
	var all []object.Pod
	if at.Kind == object.KindPod {
		all = o.view.launchers(name{at.Namespace, at.Name})
	}
	if len(all) == 0 {
		return do(at)
	}
	var errs []error
	told := false
	for _, p := range all {
		if p.Owner.UID != at.UID || at.Version != "" && !slices.Contains(strings.Split(at.Version, ","), p.UID+"="+p.Version) {
			continue // it is another, or not as it was known
		}
		one := object.Object{Key: at.Kind.Named(p.Namespace, p.Name), UID: p.UID}
		if at.Version != "" {
			one.Version = p.Version
		}
		switch err := do(one); {
		case err == nil:
			told = true
		case !errors.Is(err, core.ErrNotFound):
			errs = append(errs, err)
		}
	}
	if !told && len(errs) == 0 {
		return core.ErrNotFound
	}
	return errors.Join(errs...)
}

// Annotate implements object.Outcomes.
func (o outcomes) Annotate(ctx context.Context, at object.Object, set map[string]string, drop ...string) error {
	return o.each(at, func(at object.Object) error { return o.Outcomes.Annotate(ctx, at, set, drop...) })
}

// Warn implements object.Outcomes.
func (o outcomes) Warn(ctx context.Context, at object.Object, e object.Event) error {
	err := o.each(at, func(at object.Object) error { return o.Outcomes.Warn(ctx, at, e) })
	if errors.Is(err, core.ErrNotFound) {
		return nil // who has the name now is told by itself
	}
	return err
}
