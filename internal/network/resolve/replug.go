package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/network/resolve/element"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Present is a network that a running pod has because its annotation asked.
type Present struct {
	// Request is that of the Want that it came from; "" where nobody wrote it
	// down. Such a network is what the annotation asks for under its name and
	// on its interface, else the annotation has no say in it.
	Request string
	Network string // "namespace/name"
	IfName  string
	Devices []string // ids that its plugins were given
}

// Change is what the annotation of a running pod asks for, compared with what
// the pod has. What is in neither list stays as it is, whatever became of its
// NAD.
type Change struct {
	Gone  []Present
	Come  []Coming  // in the annotation's order
	Known []Present // those that had no Request, with it
}

// Coming is a network that the pod is to get; Err says why it cannot.
type Coming struct {
	Network string // "namespace/name"
	Want    core.Want
	Err     error
}

// Serves tells whether a configuration is for all of a pod's networks, so that
// they follow the pod's annotation while it runs.
func Serves(c core.Conf) bool {
	r := resolution{conf: c}
	return r.serves()
}

// Replug compares the networks annotation of a running pod with what the pod
// has. Networks are the same by what the annotation says of them; of several
// that are alike the first ones stay. A new one gets the interface that it asks
// for, else the first free netN: names of interfaces that stay do not move.
// fixed are the interfaces of the pod that the annotation has no say in, with
// their devices.
//
// The default network is not looked at. core.ErrNotFound: the pod is not known,
// or another one bears its name by now. Other errors are as those of Resolve and
// are about the whole annotation: then nothing may change.
func Replug(ctx context.Context, src Source, in Input, have, fixed []Present) (Change, error) {
	r := newResolution(src, in)
	if err := r.readRunning(ctx); err != nil {
		return Change{}, err
	}
	elems, err := element.Parse(v1.AnnNetworks, r.notes[v1.AnnNetworks], r.pod.Namespace)
	if err != nil {
		return Change{}, err
	}
	fresh, gone, known := compare(elems, have)
	stay := slices.DeleteFunc(slices.Clone(have), func(p Present) bool { return slices.ContainsFunc(gone, p.same) })
	stay = append(stay, fixed...)
	nets, err := r.nameFresh(fresh, stay)
	if err != nil {
		return Change{}, err
	}
	of, err := r.declareFresh(ctx, stay, nets)
	if err != nil {
		return Change{}, err
	}
	c := Change{Gone: gone, Known: known}
	given := devicesOf(stay)
	for i := range nets {
		nets[i].declared = of[nets[i].ifName]
		w, err := r.coming(ctx, nets, i, &given)
		w.Network, w.IfName = nets[i].elem.Label(), nets[i].ifName // also of one that cannot be
		c.Come = append(c.Come, Coming{Network: w.Network, Want: w, Err: err})
	}
	return c, nil
}

// readRunning is readPod for a pod that must be there, and be the same.
func (r *resolution) readRunning(ctx context.Context) error {
	found, err := r.src.Pod(ctx, r.pod)
	if errors.Is(err, core.ErrNotFound) {
		return fmt.Errorf("pod %s: %w", r.pod, core.ErrNotFound)
	}
	if err != nil {
		return core.WithCode(core.CodeTryAgain, "pod "+r.pod.String(), err)
	}
	if r.pod.UID != "" && found.UID != "" && r.pod.UID != found.UID {
		return fmt.Errorf("pod %s of UID %s: %w", r.pod, r.pod.UID, core.ErrNotFound)
	}
	r.notes = found.Annotations
	return nil
}

// compare finds the elements that the pod has no network for, the networks that
// no element asks for any more, and what had no Request with the one it has by
// now.
func compare(elems []element.Element, have []Present) (fresh []element.Element, gone, known []Present) {
	gone = slices.Clone(have)
	for _, e := range elems {
		at := slices.IndexFunc(gone, func(p Present) bool { return p.Request == e.Request })
		if at < 0 {
			at = slices.IndexFunc(gone, func(p Present) bool { return p.Request == "" && p.fits(e) })
		}
		if at < 0 {
			fresh = append(fresh, e)
			continue
		}
		if p := gone[at]; p.Request == "" {
			p.Request = e.Request
			known = append(known, p)
		}
		gone = slices.Delete(gone, at, at+1)
	}
	gone = slices.DeleteFunc(gone, func(p Present) bool { return p.Request == "" })
	return fresh, gone, known
}

// fits tells that a network whose request nobody wrote down may be the one that
// e asks for.
func (p Present) fits(e element.Element) bool {
	return p.Network == e.Label() && (e.IfName == "" || e.IfName == p.IfName)
}

func (p Present) same(q Present) bool { return p.IfName == q.IfName }

// nameFresh gives the new networks their interface names.
func (r *resolution) nameFresh(fresh []element.Element, stay []Present) ([]network, error) {
	var used []string
	for _, p := range stay {
		used = append(used, p.IfName)
	}
	var asked []string
	nets := make([]network, 0, len(fresh))
	for _, e := range fresh {
		if slices.Contains(asked, e.IfName) {
			return nil, annotation.Refused(core.CodeConflict, e.Field+".interface", e.IfName, "is asked for twice")
		}
		if e.IfName != "" {
			asked = append(asked, e.IfName)
		}
		nets = append(nets, network{elem: e, ifName: e.IfName})
	}
	free := slices.Concat(used, asked)
	for i := range nets {
		for at := 1; nets[i].ifName == ""; at++ {
			if name := fmt.Sprintf("net%d", at); !slices.Contains(free, name) {
				nets[i].ifName = name
				free = append(free, name)
			}
		}
	}
	return nets, nil
}

// coming resolves one new network. given are networks that hold devices; one
// that gets a device joins them.
func (r *resolution) coming(ctx context.Context, nets []network, at int, given *[]network) (core.Want, error) {
	e, ifName, s := nets[at].elem, nets[at].ifName, nets[at].declared
	n, err := r.fromNAD(ctx, e)
	if err != nil {
		return core.Want{}, err
	}
	n.ifName = ifName
	if err := r.ask(&n); err != nil {
		return core.Want{}, err
	}
	if s != nil {
		if err := r.settle(&n, s); err != nil {
			return core.Want{}, err
		}
	}
	all := append(slices.Clone(*given), n)
	if err := r.handOut(ctx, all); err != nil {
		return core.Want{}, err
	}
	if err := r.ofPF(&all[len(all)-1]); err != nil {
		return core.Want{}, err
	}
	nets[at] = all[len(all)-1]
	*given = append(*given, network{elem: element.Element{DeviceID: nets[at].elem.DeviceID, Field: e.Field}})
	return r.want(ctx, nets, at)
}

// devicesOf are networks that stand for the devices which the pod's interfaces
// have: nobody is given them again.
func devicesOf(have []Present) []network {
	var out []network
	for _, p := range have {
		for _, id := range p.Devices {
			out = append(out, network{elem: element.Element{DeviceID: id, Field: "interface " + p.IfName}})
		}
	}
	return out
}
