package upkeep_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// world is what is asked of a pod, and what is declared of it, "" for nothing.
type world struct {
	resolve.Source
	notes    map[string]string
	declares string
}

func (w *world) Pod(_ context.Context, p core.Pod) (*resolve.Pod, error) {
	return &resolve.Pod{Pod: p, Annotations: w.notes}, nil
}

func (w *world) Declared(context.Context) (*declared.Index, error) {
	var maps []declared.ConfigMap
	if w.declares != "" {
		maps = append(maps, declared.ConfigMap{Namespace: "bank", Name: "net", Data: map[string]string{"p": w.declares}})
	}
	return declared.NewIndex(nil, maps, "", nil), nil
}

// device is a driver that notes what it is to change.
type device struct {
	driver.Driver
	err  error
	said []core.Spec
}

func (d *device) Repair(_ context.Context, _ driver.Run, s core.Spec) (found, err error) {
	d.said = append(d.said, s)
	return nil, d.err
}

func (d *device) Change(_ context.Context, _ driver.Run, s core.Spec) error {
	d.said = append(d.said, s)
	return d.err
}

// promises notes what is booked; full refuses.
type promises struct {
	booked []string
	full   bool
}

func (p *promises) Promise(_ core.Key, mbps int) error {
	p.booked = append(p.booked, fmt.Sprint("promise ", mbps))
	if p.full {
		return core.Reasoned(core.CodeDevice, core.ReasonMinRate, "no")
	}
	return nil
}

func (p *promises) Promised(_ core.Key, mbps int) error {
	p.booked = append(p.booked, fmt.Sprint("promised ", mbps))
	return nil
}

// heard are failures that were told.
type heard struct {
	core.Notices
	told []core.Attempt
}

func (h *heard) Failed(a core.Attempt) { h.told = append(h.told, a) }

// leases notes who claims what, and what was given back.
type leases struct {
	err         error
	bound, free []string
}

func (l *leases) Bind(_ context.Context, specs []core.Spec) error {
	if l.err != nil {
		return l.err
	}
	for i := range specs {
		l.bound = append(l.bound, claimed(specs[i])...)
		for n := range specs[i].Claims {
			specs[i].Claims[n].Epoch = 1
		}
	}
	return nil
}

func (l *leases) Free(specs []core.Spec) {
	for _, s := range specs {
		l.free = append(l.free, claimed(s)...)
	}
}

// claimed are the names of a Spec's leases.
func claimed(s core.Spec) (out []string) {
	for _, c := range s.Claims {
		out = append(out, lease.Name(c))
	}
	return out
}

// bed is a Keeper with a pod that has one interface.
type bed struct {
	*testing.T
	*world
	keeper *upkeep.Keeper
	dev    *device
	leases *leases
	heard  *heard
	rec    core.Record
}

func newBed(t *testing.T, s core.Spec) *bed {
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	b := &bed{T: t, world: &world{}, dev: &device{}, leases: &leases{}, heard: &heard{}}
	s.Key, s.Driver = core.Key{Container: "c", IfName: "eth0"}, "any"
	b.rec = core.Record{Key: s.Key, Pod: core.Pod{Namespace: "bank", Name: "p"}, Phase: core.Adding, Specs: []core.Spec{s}}
	require.NoError(t, j.Begin(t.Context(), b.rec))
	b.rec.Phase = core.Added
	require.NoError(t, j.Save(t.Context(), b.rec))
	b.keeper = upkeep.New(upkeep.Config{
		Journal: j, Source: b.world, Declared: b.world, Drivers: driver.Set{"any": b.dev}, Leases: b.leases, Notices: b.heard, Log: slog.New(slog.DiscardHandler),
		PFOf: func(string) (string, error) { return "ens1f0", nil },
	})
	return b
}

// tune gives the spec as the record has it afterwards, and how often the driver was asked.
func (b *bed) tune() (core.Spec, int) {
	b.Helper()
	b.dev.said = nil
	err := b.keeper.Tune(b.Context(), &b.rec)
	if b.leases.err == nil && (b.dev.err == nil || core.ReasonOf(b.dev.err) != "") {
		require.NoError(b, err)
	} else {
		require.Error(b, err, "it is tried again")
	}
	kept, ok := b.keeper.Journal.Get(b.rec.Key)
	require.True(b, ok)
	require.Equal(b, kept.Specs, b.rec.Specs)
	return b.rec.Specs[0], len(b.dev.said)
}

// TestDeclaredRates: the rates and the VLAN that are declared of a running pod come before
// what its annotations leave open, and go when nobody declares them any more.
func TestDeclaredRates(t *testing.T) {
	b := newBed(t, core.Spec{NIC: &core.NICSpec{Bandwidth: &core.QoS{IngressMbps: 7}, Settings: core.Settings{VLAN: 5, Tuning: core.Tuning{QoS: core.QoS{IngressMbps: 7}}}}})
	for _, c := range []struct {
		declares      string
		notes         map[string]string
		vlan, ingress int
		changed       int
		told          string
	}{
		{"", nil, 5, 7, 0, ""},
		{`{"vlan":9,"max_tx_rate":30}`, nil, 9, 30, 1, ""},
		{`{"vlan":9,"max_tx_rate":30}`, nil, 9, 30, 0, ""},
		{`{"vlan":9,"max_tx_rate":30}`, map[string]string{"ovn.kubernetes.io/ingress_rate": "40"}, 9, 30, 0, "AnnotationConflict"},
		{`{"vlan":9}`, map[string]string{"ovn.kubernetes.io/ingress_rate": "40"}, 9, 40, 1, ""},
		{`{"vlan":8}`, map[string]string{"ovn.kubernetes.io/vlan_id": "3"}, 9, 40, 0, "AnnotationConflict"},
		{`{"vlan":4095}`, nil, 9, 40, 0, "InvalidVLAN"},
		{"", nil, 5, 7, 1, ""},
	} {
		b.declares, b.notes, b.heard.told = c.declares, c.notes, nil
		s, changed := b.tune()
		require.Equal(t, []int{c.vlan, c.ingress, c.changed}, []int{s.NIC.VLAN, s.NIC.QoS.IngressMbps, changed}, "%+v", c)
		if c.told == "" {
			require.Empty(t, b.heard.told)
			continue
		}
		require.Len(t, b.heard.told, 1)
		require.Contains(t, b.heard.told[0].Error, c.told)
		b.tune()
		require.Len(t, b.heard.told, 1, "it is told once")
	}
}

// TestDeclaredOfAPlugin: what is declared of an interface of somebody's plugin is in the
// record before the plugin hears of it, with what counts again where it refuses; what it
// could not do yet is tried again.
func TestDeclaredOfAPlugin(t *testing.T) {
	const plain = `{"deviceID":"0000:01:10.0","mac":"02:00:00:00:00:01","trust":"on","type":"sriov","vlan":7}`
	b := newBed(t, core.Spec{Exec: &core.Exec{Type: "sriov", Conf: json.RawMessage(plain)}})
	_, asked := b.tune()
	require.Zero(t, asked)
	b.declares = `{"vlan":9,"max_tx_rate":30}`
	s, asked := b.tune()
	require.Equal(t, 1, asked)
	require.JSONEq(t, plain, string(b.dev.said[0].Exec.Former))
	const now = `{"deviceID":"0000:01:10.0","mac":"02:00:00:00:00:01","trust":"on","type":"sriov","vlan":9,"vlanQoS":0,"vlanProto":"802.1q","max_tx_rate":30}`
	require.JSONEq(t, now, string(s.Exec.Conf))
	require.Nil(t, s.Exec.Former)

	b.declares, b.dev.err = `{"vlan":10,"trust":"off"}`, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "no")
	for n := range 3 {
		s, asked = b.tune()
		require.Equal(t, max(0, 1-n), asked, "a refusal is not asked for again")
		require.JSONEq(t, now, string(s.Exec.Conf))
		require.Len(t, b.heard.told, 1)
	}
	b.declares, b.dev.err = `{"trust":"off"}`, errors.New("not now")
	for range 2 { // as an agent that died in between
		s, asked = b.tune()
		require.Equal(t, 1, asked)
		require.JSONEq(t, now, string(s.Exec.Former))
	}
	b.dev.err = nil
	s, asked = b.tune()
	require.Equal(t, 1, asked)
	require.Nil(t, s.Exec.Former)
	require.Contains(t, string(s.Exec.Conf), `"vlan":7`)

	b.heard.told, b.declares = nil, `{"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:02","sriov":{"pf":["ens1f0"]}}]}`
	s, _ = b.tune()
	require.JSONEq(t, plain, string(s.Exec.Conf))
	b.tune()
	require.Len(t, b.heard.told, 1)
	require.Contains(t, b.heard.told[0].Error, "RestartNeeded: mac of interface eth0")
	b.declares = `{"interfaces":[{"name":"eth0","sriov":{"pf":["ens2f0"]}}]}`
	b.tune()
	require.Contains(t, b.heard.told[1].Error, "RestartNeeded: sriov.pf of interface eth0")
}

// TestPromisedRate: a rate is booked before the card has it; where it cannot be promised, or
// the card refuses, what was promised is booked again, and the pod keeps what it has.
func TestPromisedRate(t *testing.T) {
	const plain = `{"deviceID":"0000:01:10.0","type":"sriov","min_tx_rate":20}`
	b := newBed(t, core.Spec{Exec: &core.Exec{Type: "sriov", Conf: json.RawMessage(plain)}})
	book := &promises{}
	b.keeper.Promises = book
	for _, c := range []struct {
		declares string
		full     bool
		err      error
		asked    int
		booked   []string
		told     string
	}{
		{`{"min_tx_rate":90}`, true, nil, 0, []string{"promise 90", "promised 20"}, core.ReasonMinRate},
		{`{"min_tx_rate":80}`, false, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "no"), 1, []string{"promise 80", "promised 20"}, core.ReasonDriverCannot},
		{`{"min_tx_rate":70}`, false, errors.New("not now"), 1, []string{"promise 70"}, ""},
		{`{"min_tx_rate":20}`, false, nil, 1, []string{"promise 20"}, ""},
		{`{"min_tx_rate":30}`, false, nil, 1, []string{"promise 30"}, ""},
	} {
		b.declares, b.dev.err, b.heard.told, book.full, book.booked = c.declares, c.err, nil, c.full, nil
		s, asked := b.tune()
		require.Equal(t, c.asked, asked, "%+v", c)
		require.Equal(t, c.booked, book.booked)
		if c.told != "" {
			require.JSONEq(t, plain, string(s.Exec.Conf))
			require.Contains(t, b.heard.told[0].Error, c.told)
		}
	}
}

// TestClaimsOfAnotherVLAN: an interface that goes to another VLAN claims what it has there before
// its record says so, and gives back what it had when it is there; what it cannot have there
// leaves it where it is, and while it may be in either it has both.
func TestClaimsOfAnotherVLAN(t *testing.T) {
	a, mac := netip.MustParseAddr("10.9.0.17"), core.MAC{2, 0, 0, 0, 0, 1}
	mine := func() []core.Claim {
		return []core.Claim{{Domain: "racks.vlan7", Wire: "racks", Addr: a, Epoch: 3}, {Domain: "racks.vlan7", Wire: "racks", MAC: mac}, {Domain: "whereabouts", Addr: a}}
	}
	in := func(vlan string) []string {
		return []string{"racks" + vlan + ".10.9.0.17", "racks" + vlan + ".mac.020000000001"}
	}
	const whole = "whereabouts.10.9.0.17"
	for name, s := range map[string]core.Spec{
		"plugin": {Exec: &core.Exec{Type: "sriov", Conf: json.RawMessage(`{"type":"sriov","vlan":7}`)}, Claims: mine()},
		"nic":    {NIC: &core.NICSpec{Settings: core.Settings{VLAN: 7}}, Claims: mine()},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, s)
			now := func(held []string, changes int, bound, free []string) {
				t.Helper()
				b.leases.bound, b.leases.free = nil, nil
				s, asked := b.tune()
				require.Equal(t, [][]string{held, bound, free}, [][]string{claimed(s), b.leases.bound, b.leases.free})
				require.Equal(t, changes, asked)
			}
			b.leases.err, b.declares = core.Reasoned(core.CodeTryAgain, core.ReasonAddressHeld, "pod bank/q has it"), `{"vlan":9}`
			for range 2 {
				now(append(in(".vlan7"), whole), 0, nil, nil)
				require.Len(t, b.heard.told, 1)
				require.Contains(t, b.heard.told[0].Error, "interface eth0 stays in its VLAN: AddressHeld: pod bank/q has it")
			}
			b.leases.err = nil
			now(append([]string{whole}, in(".vlan9")...), 1, in(".vlan9"), in(".vlan7"))
			require.Equal(t, append(append(in(".vlan7"), whole), in(".vlan9")...), claimed(b.dev.said[0]), "the record has both while it goes there")
			require.Equal(t, int64(1), b.rec.Specs[0].Claims[1].Epoch)
			now(append([]string{whole}, in(".vlan9")...), 0, nil, nil)

			both := append([]string{whole}, append(in(".vlan9"), in("")...)...)
			b.declares, b.dev.err = `{"vlan":0}`, errors.New("not now")
			now(both, 1, in(""), nil)
			now(both, 1, nil, nil)
			if name == "plugin" {
				b.dev.err = core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "no")
				now(append([]string{whole}, in(".vlan9")...), 1, nil, in(""))
				b.dev.err = nil
				return
			}
			b.dev.err = nil
			now(append([]string{whole}, in("")...), 1, nil, in(".vlan9"))
		})
	}
}
