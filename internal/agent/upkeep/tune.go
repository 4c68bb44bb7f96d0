package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Tune gives the NICs of a running pod the rates, the mirror and the port security that
// its annotations ask for now: in the record first, so that CHECK and a restart agree.
// A NIC whose annotations cannot be read keeps what it has, and that is told,
// once. The caller has the container's turn.
func (k *Keeper) Tune(ctx context.Context, rec *core.Record) error {
	pod, err := (resolve.Heard{Source: k.Source}).Pod(ctx, rec.Pod)
	if errors.Is(err, core.ErrNotFound) || err == nil && pod.UID != "" && rec.Pod.UID != "" && pod.UID != rec.Pod.UID {
		return nil // it is going, or another one by now
	}
	if err != nil {
		return err
	}
	changed, wrong := k.changes(ctx, rec.Specs, pod.Annotations)
	k.mistuned(*rec, wrong)
	if len(changed) == 0 {
		return nil
	}
	next := *rec
	next.Specs = slices.Clone(rec.Specs)
	for i, s := range changed {
		next.Specs[i] = s
	}
	if err := k.Journal.Save(ctx, next); err != nil {
		return err
	}
	fail.Here("tune.recorded")
	*rec = next
	var errs []error
	for _, s := range changed {
		d, _ := k.Drivers[s.Driver].(driver.Repairer)
		_, err := d.Repair(ctx, driver.Run{}, s)
		errs = append(errs, err)
		k.Log.Info("settings of a running pod changed", "pod", rec.Pod, "ifname", s.Key.IfName, "ingress_mbps", s.NIC.QoS.IngressMbps,
			"egress_mbps", s.NIC.QoS.EgressMbps, "mirror", s.NIC.Mirror, "port_security", !s.NIC.Open, "port_vips", s.NIC.VIPs)
	}
	return errors.Join(errs...)
}

// changes are the Specs that the annotations change, by their place, and why
// others stay as they are.
func (k *Keeper) changes(ctx context.Context, specs []core.Spec, notes map[string]string) (changed map[int]core.Spec, wrong error) {
	changed = map[int]core.Spec{}
	for i, s := range specs {
		if _, ok := k.Drivers[s.Driver].(driver.Repairer); !ok || s.Kind() != core.KindNIC {
			continue
		}
		now, err := tuned(s, notes)
		if err == nil && now.QoS != s.NIC.QoS {
			err = resolve.MayTune(ctx, k.Source, s.Network, now)
		}
		if wrong = errors.Join(wrong, err); err == nil && now != s.NIC.Tuning {
			s.ChangeNIC().Tuning = now
			changed[i] = s
		}
	}
	return changed, wrong
}

// mistuned tells why rates are not as asked for, each reason once.
func (k *Keeper) mistuned(rec core.Record, err error) {
	if err == nil {
		k.untuned.Delete(rec.Key)
		return
	}
	if was, _ := k.untuned.Swap(rec.Key, err.Error()); was == err.Error() {
		return
	}
	err = core.WithCode(core.CodeValue, "rates, mirror and port security stay as they are", err)
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
		k.untuned.Delete(rec.Key)
	}
}

// tuned is what the pod's annotations ask for now, of a running pod's NIC. Where a
// record does not say what else asked for bandwidth, rates stay unless annotations
// set some. An error names the annotation; then nothing may change.
func tuned(s core.Spec, notes map[string]string) (core.Tuning, error) {
	a := annotation.Notes{All: notes, Provider: providerOf(s), IfName: s.Key.IfName}
	now, err := a.Tuning()
	switch {
	case err != nil || now.QoS.Rated():
	case s.NIC.Bandwidth != nil:
		now.QoS = now.QoS.WithRates(*s.NIC.Bandwidth)
	default:
		now.QoS = now.QoS.WithRates(s.NIC.QoS)
	}
	return now, err
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
