package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Tune gives the interfaces of a running pod what its annotations ask for and what is
// declared of it now, as far as that may change while it runs: in the record first, so
// that CHECK and a restart agree. What cannot be read, what contradicts itself, what a
// driver refuses and what only a new pod can have leaves what there is, and is told, once.
// The caller has the container's turn.
func (k *Keeper) Tune(ctx context.Context, rec *core.Record) error {
	now, err := k.asked(ctx, *rec)
	if now == nil || err != nil {
		return err
	}
	changed, wrong, later := k.changes(ctx, rec.Specs, now)
	bound, refused := k.bind(ctx, changed)
	if core.ReasonOf(refused) != "" {
		wrong = errors.Join(wrong, refused)
	}
	k.mistuned(*rec, tuning, core.WithCode(core.CodeValue, "rates, VLAN, mirror and port security stay as they are", wrong))
	k.mistuned(*rec, restart, later)
	if len(changed) > 0 {
		next := *rec
		next.Specs = slices.Clone(rec.Specs)
		for i, s := range changed {
			next.Specs[i] = s
		}
		if err := k.Journal.Save(ctx, next); err != nil {
			k.free(bound)
			return err
		}
		fail.Here("tune.recorded")
		*rec = next
	}
	return errors.Join(refused, k.carryOut(ctx, rec, changed))
}

// asked is what counts for a running pod now.
type asked struct {
	notes    map[string]string             // its annotations
	unknown  bool                          // the source does not know the pod: annotations stay as they were
	declared map[string]*declared.Settings // by interface
}

// asked is nil where the record is another pod's by now.
func (k *Keeper) asked(ctx context.Context, rec core.Record) (*asked, error) {
	out := &asked{}
	pod, err := (resolve.Heard{Source: k.Source}).Pod(ctx, rec.Pod)
	switch {
	case errors.Is(err, core.ErrNotFound):
		out.unknown = true // a folder may declare settings of a pod that it has not
	case err != nil:
		return nil, err
	case pod.UID != "" && rec.Pod.UID != "" && pod.UID != rec.Pod.UID:
		return nil, nil
	default:
		out.notes = pod.Annotations
	}
	out.declared, err = k.settled(ctx, rec)
	if core.CodeOf(err) != core.CodeTryAgain && err != nil {
		k.mistuned(rec, tuning, err)
		return nil, nil
	}
	return out, err
}

// carryOut makes what the record says of Specs that were changed, and of those whose
// change an agent that died left under way.
func (k *Keeper) carryOut(ctx context.Context, rec *core.Record, changed map[int]core.Spec) error {
	var errs []error
	for i, s := range rec.Specs {
		_, now := changed[i]
		switch {
		case s.Kind() == core.KindDelegate && s.Exec.Former != nil:
			errs = append(errs, k.change(ctx, rec, i))
		case s.Kind() == core.KindNIC && (now || moves(s)):
			d, _ := k.Drivers[s.Driver].(driver.Repairer)
			_, err := d.Repair(ctx, driver.Run{}, s)
			if err == nil && moves(s) {
				err = k.moved(ctx, rec, *rec, i)
			}
			errs = append(errs, err)
			k.Log.Info("settings of a running pod changed", "pod", rec.Pod, "ifname", s.Key.IfName, "vlan", s.NIC.VLAN, "ingress_mbps", s.NIC.QoS.IngressMbps,
				"egress_mbps", s.NIC.QoS.EgressMbps, "mirror", s.NIC.Mirror, "port_security", !s.NIC.Open, "port_vips", s.NIC.VIPs)
		}
	}
	return errors.Join(errs...)
}

// changes are the Specs that are to be others, by their place, why some stay as they
// are, and what only a new pod can have.
func (k *Keeper) changes(ctx context.Context, specs []core.Spec, now *asked) (changed map[int]core.Spec, wrong, later error) {
	changed = map[int]core.Spec{}
	seen := map[string]bool{}
	for i, s := range specs {
		if seen[s.Key.IfName] {
			continue // what is declared of an interface is told to its first plugin
		}
		seen[s.Key.IfName] = true
		set := now.declared[s.Key.IfName]
		next, err := s, error(nil)
		switch s.Kind() {
		case core.KindNIC:
			next, err = k.retuned(ctx, s, set, now)
		case core.KindDelegate:
			next, err = k.reconfigured(s, set)
		}
		wrong = errors.Join(wrong, err)
		if err == nil && !reflect.DeepEqual(next, s) {
			changed[i] = next
		}
		later = errors.Join(later, k.later(s, set))
	}
	return changed, wrong, later
}

// What a Keeper tells of a pod.
const (
	tuning  = "tuning"  // why what may change is not as it should be
	restart = "restart" // what only a new pod can have
)

type topic struct {
	key  core.Key
	what string
}

// mistuned tells why a pod does not have what is asked for, each reason once.
func (k *Keeper) mistuned(rec core.Record, what string, err error) {
	at := topic{rec.Key, what}
	if err == nil {
		k.untuned.Delete(at)
		return
	}
	if was, _ := k.untuned.Swap(at, err.Error()); was == err.Error() {
		return
	}
	k.tell(rec, err)
}

func (k *Keeper) tell(rec core.Record, err error) {
	a := core.Attempt{Op: core.HotPlug, Key: rec.Key, Pod: rec.Pod, When: time.Now().UTC(), Code: core.CodeOf(err), Error: err.Error()}
	k.Journal.Fail(a)
	if k.Notices != nil {
		k.Notices.Failed(a)
	}
}

// Forget drops what is known of an attachment that is gone. Of one that lost interfaces and
// goes on it keeps it.
func (k *Keeper) Forget(rec core.Record) {
	if _, there := k.Journal.Head(rec.Key); !there {
		k.untuned.Delete(topic{rec.Key, tuning})
		k.untuned.Delete(topic{rec.Key, restart})
	}
}

// tuned is what the pod's annotations ask for now, of a running pod's NIC. Where a
// record does not say what else asked for bandwidth, rates stay unless annotations
// set some. An error names the annotation; then nothing may change. asked are the rates
// of the annotations themselves.
func tuned(s core.Spec, notes map[string]string) (now core.Tuning, asked core.QoS, err error) {
	a := annotation.Notes{All: notes, Provider: providerOf(s), IfName: s.Key.IfName}
	now, err = a.Tuning()
	asked = now.QoS
	if err == nil && !asked.Rated() {
		now.QoS = now.QoS.WithRates(otherwise(s))
	}
	return now, asked, err
}

// otherwise are the rates of a NIC for which annotations ask for none.
func otherwise(s core.Spec) core.QoS {
	switch {
	case s.NIC.Bandwidth != nil:
		return *s.NIC.Bandwidth
	case s.Declared[declared.MaxMbps] != "":
		return core.QoS{}
	}
	return s.NIC.QoS
}

// providerOf reads the name of a NIC's logical port (ifaceID).
func providerOf(s core.Spec) string {
	id, own := strings.CutPrefix(s.NIC.IfaceID, s.Pod.Name+"."+s.Pod.Namespace)
	if !own { // it has a virtual machine's name
		_, id, _ = strings.Cut(id+".", "."+s.Pod.Namespace+".")
		id = strings.TrimSuffix(id, ".")
	}
	id = strings.TrimSuffix(strings.TrimPrefix(id, "."), "."+s.Key.IfName)
	if id == "" || id == s.Key.IfName {
		return v1.DefaultProvider
	}
	return id
}

// asksAgain is how long a kernel without netem is not asked again: a module may come.
const asksAgain = time.Minute

// Delays asks the kernel, when a NIC wants a delay, until it has one to give (nil), and says
// so when it has none. netem: how to ask; nil: it has.
func Delays(netem func() error, log *slog.Logger) func() error {
	var mu sync.Mutex
	var asked time.Time
	var has bool
	var err error
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if netem == nil || has || !asked.IsZero() && time.Since(asked) < asksAgain {
			return err
		}
		first := asked.IsZero()
		asked, err = time.Now(), netem()
		if has = err == nil; !has && first {
			log.Warn("latency, jitter, limit and loss are stored, not enforced: the kernel has no netem", "err", err)
		}
		return err
	}
}
