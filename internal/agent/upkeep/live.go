package upkeep

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// settled is what is declared of a running pod's interfaces now, by interface.
func (k *Keeper) settled(ctx context.Context, rec core.Record) (map[string]*declared.Settings, error) {
	if k.Declared == nil || rec.Pod.IsZero() {
		return nil, nil
	}
	index, err := k.Declared.Declared(ctx)
	if err != nil {
		return nil, core.WithCode(core.CodeTryAgain, "what is declared of pods", err)
	}
	all, err := index.Of(ctx, rec.Pod)
	if err == nil {
		err = declared.Place(all, rec.Key.IfName, further(rec))
	}
	if err != nil {
		return nil, err
	}
	settled, err := declared.Settle(all)
	out := map[string]*declared.Settings{}
	for i := range settled {
		out[settled[i].Name] = &settled[i]
	}
	return out, err
}

// further are the interfaces that the pod itself asked for, but the first one.
func further(rec core.Record) (out []string) {
	for _, s := range rec.Specs {
		if name := s.Key.IfName; s.Request != "" && name != rec.Key.IfName && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// live are the fields of a Spec's interface that may change while the pod runs.
func (k *Keeper) live(s core.Spec) []string {
	switch s.Kind() {
	case core.KindNIC:
		if _, ok := k.Drivers[s.Driver].(driver.Repairer); ok {
			return []string{declared.VLAN, declared.MinMbps, declared.MaxMbps, declared.SpoofChk, declared.Trust, declared.LinkState, declared.PF}
		}
	case core.KindDelegate:
		if _, ok := k.Drivers[s.Driver].(driver.Changer); ok {
			return declared.Live(s.Exec.Type)
		}
	}
	return nil
}

// fieldsOf is what is declared, by field.
func fieldsOf(set *declared.Settings) map[string]string {
	if set == nil {
		return nil
	}
	return set.Fields()
}

// differ are the fields that are declared otherwise now than of the Spec, in order.
func differ(s core.Spec, set *declared.Settings) (out []string) {
	now := fieldsOf(set)
	for _, f := range slices.Sorted(maps.Keys(joined(s.Declared, now))) {
		if now[f] != s.Declared[f] {
			out = append(out, f)
		}
	}
	return out
}

func joined(a, b map[string]string) map[string]string {
	out := maps.Clone(b)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, a)
	return out
}

// declaredNow is the Spec's Declared with what may change as it is declared now; nil where
// that is nothing.
func declaredNow(s core.Spec, set *declared.Settings, live []string) map[string]string {
	out, now := joined(s.Declared, nil), fieldsOf(set)
	for _, f := range live {
		delete(out, f)
		if text := now[f]; text != "" {
			out[f] = text
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// retuned is the Spec of a NIC of our own as its annotations and declarations have it now.
func (k *Keeper) retuned(ctx context.Context, s core.Spec, set *declared.Settings, now *asked) (core.Spec, error) {
	d, ok := k.Drivers[s.Driver].(driver.Repairer)
	if !ok {
		return s, nil
	}
	next := s
	n := next.ChangeNIC()
	var rates core.QoS
	var err error
	if now.unknown {
		if s.Declared[declared.MaxMbps] != "" {
			n.QoS = n.QoS.WithRates(otherwise(s))
		}
	} else if n.Tuning, rates, err = tuned(s, now.notes); err != nil {
		return s, err
	}
	if n.QoS != s.NIC.QoS {
		if err := resolve.MayTune(ctx, k.Source, s.Network, rates); err != nil {
			return s, err
		}
	}
	if err := set.Retell(n, rates); err != nil {
		return s, err
	}
	if set != nil {
		if err := fits(d, next, set, now.notes); err != nil {
			return s, err
		}
	}
	next.Declared = declaredNow(s, set, k.live(s))
	return next, nil
}

// fits refuses what the driver cannot do of what is declared, and a VLAN that an annotation
// contradicts.
func fits(d driver.Driver, s core.Spec, set *declared.Settings, notes map[string]string) error {
	if c, ok := d.(driver.Carrier); ok {
		s.ChangeNIC()
		nic := core.NIC{Driver: s.Driver, Settings: s.NIC.Settings, Type: v1.NICVeth, Hardware: set.Hardware()}
		if err := c.Carry(&s, &nic); err != nil {
			return err
		}
	}
	if set.VLAN == nil {
		return nil
	}
	ann := annotation.Notes{All: notes, Provider: providerOf(s), IfName: s.Key.IfName}
	a, err := ann.Read()
	if err == nil && a.HasVLAN && a.VLAN != set.VLAN.ID {
		err = set.Contradicts(declared.VLAN, fmt.Sprint(set.VLAN.ID), ann.Key(v1.FieldVLAN), fmt.Sprint(a.VLAN))
	}
	return err
}

// reconfigured is the Spec of somebody's plugin with what is declared now of what it may
// change, and with the configuration to which it goes back where the plugin refuses.
func (k *Keeper) reconfigured(s core.Spec, set *declared.Settings) (core.Spec, error) {
	live := k.live(s)
	if !slices.ContainsFunc(differ(s, set), func(f string) bool { return slices.Contains(live, f) }) {
		return s, nil
	}
	next := s
	x := next.ChangeExec()
	if x.Plain == nil {
		x.Plain = x.Conf
	}
	conf, err := set.Reconfigure(x.Type, x.Conf, x.Plain)
	if err != nil {
		return s, err
	}
	if x.Former == nil {
		x.Former = x.Conf
	}
	x.Conf = conf
	next.Declared = declaredNow(s, set, live)
	return next, nil
}

// later is a RestartNeeded where something else is declared now that a running pod cannot
// take.
func (k *Keeper) later(s core.Spec, set *declared.Settings) error {
	live := k.live(s)
	var fields, from []string
	for _, f := range differ(s, set) {
		if slices.Contains(live, f) || f == declared.PF && k.onPF(s, set) {
			continue
		}
		fields = append(fields, f)
		if set != nil && set.From[f] != "" && !slices.Contains(from, set.From[f]) {
			from = append(from, set.From[f])
		}
	}
	if len(fields) == 0 {
		return nil
	}
	who := "nobody"
	if len(from) > 0 {
		who = strings.Join(from, ", ")
	}
	return core.Reasoned(core.CodeValue, core.ReasonRestartNeeded, "%s of interface %s: %s declares another value now than when the pod was made, and the pod keeps what it has until it is made anew",
		strings.Join(fields, ", "), s.Key.IfName, who)
}

// onPF tells that the Spec's device is of one of the physical functions that are declared
// now, or that none is.
func (k *Keeper) onPF(s core.Spec, set *declared.Settings) bool {
	if set == nil || set.SRIOV == nil || len(set.SRIOV.PF) == 0 {
		return true
	}
	pf, err := k.PFOf(record.Device(s))
	return err == nil && slices.Contains(set.SRIOV.PF, pf)
}

// change has the plugin of the Spec at that place carry out the configuration that the
// record says. What it refuses is told, and the former configuration counts again.
func (k *Keeper) change(ctx context.Context, rec *core.Record, at int) error {
	s := rec.Specs[at]
	d, ok := k.Drivers[s.Driver].(driver.Changer)
	if !ok {
		return nil
	}
	err := k.promise(s)
	if err == nil {
		err = d.Change(ctx, driver.Run{}, s)
	}
	if core.ReasonOf(err) != "" && k.Promises != nil {
		if kept := k.Promises.Promised(s.Key, promised(s.Exec.Former)); kept != nil {
			return kept
		}
	}
	if err != nil && core.ReasonOf(err) == "" {
		return fmt.Errorf("settings of a running pod are not changed yet: %w", err)
	}
	next := *rec
	next.Specs = slices.Clone(rec.Specs)
	x := next.Specs[at].ChangeExec()
	if err != nil {
		x.Conf = x.Former
	}
	x.Former = nil
	if saved := k.moved(ctx, rec, next, at); saved != nil {
		return saved
	}
	if err != nil {
		k.tell(*rec, core.WithCode(core.CodeOf(err), "interface "+s.Key.IfName+" keeps what it has", err))
		return nil
	}
	k.Log.Info("settings of a running pod changed", "pod", rec.Pod, "ifname", s.Key.IfName, "declared", s.Declared)
	return nil
}

// promise books the rate that the Spec's configuration promises. It stays booked while nobody
// knows what came of the change.
func (k *Keeper) promise(s core.Spec) error {
	if k.Promises == nil {
		return nil
	}
	return k.Promises.Promise(s.Key, promised(s.Exec.Conf))
}

// promised is the rate, Mbit/s, that a configuration promises, 0 for none.
func promised(raw json.RawMessage) int {
	var conf struct {
		MinMbps int `json:"min_tx_rate"`
	}
	_ = json.Unmarshal(raw, &conf) // its plugin tells what is wrong with it
	return conf.MinMbps
}
