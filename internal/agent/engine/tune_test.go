package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// noted is a Source whose pods have these annotations.
type noted struct {
	resolve.Source
	notes map[string]string
}

func (s *noted) Pod(_ context.Context, p core.Pod) (*resolve.Pod, error) {
	return &resolve.Pod{Pod: p, Annotations: s.notes}, nil
}

// repaired is a driver that can change ports.
type repaired struct {
	*nics
	specs []core.Spec
}

func (d *repaired) Repair(_ context.Context, _ driver.Run, s core.Spec) (found, err error) {
	d.specs = append(d.specs, s)
	return nil, nil
}

// failures hears of what failed.
type failures struct {
	unheard
	told []core.Attempt
}

func (f *failures) Failed(a core.Attempt) { f.told = append(f.told, a) }

// TestUnreadableRateKeepsTheFormer: it is told, once, as a failure of the pod,
// and neither the record nor the port changes.
func TestUnreadableRateKeepsTheFormer(t *testing.T) {
	e := newEngine(t, &nics{})
	d := &repaired{nics: &nics{}}
	src := &noted{Source: e.Source, notes: map[string]string{"ovn.kubernetes.io/ingress_rate": "30"}}
	e.Drivers["ovs"], e.Source = d, src
	req := add(t)
	req.Conf.Raw = []byte(`{"cniVersion":"1.0.0","name":"net","type":"fairlead"}`)
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	rates := func() (out []int) {
		rec, _ := e.Journal.Get(req.Key)
		for _, s := range rec.Specs {
			out = append(out, s.NIC.QoS.IngressMbps)
		}
		return out
	}
	was := rates()
	require.Contains(t, was, 30)
	heard := &failures{}
	e.Tune = upkeep.New(upkeep.Config{Journal: e.Journal, Source: src, Drivers: e.Drivers, BootID: e.BootID, Notices: heard, Log: e.Log}).Tune
	src.notes = map[string]string{"ovn.kubernetes.io/ingress_rate": "fast"}
	for range 3 {
		require.NoError(t, e.Replug(t.Context(), req.Pod))
	}
	require.Equal(t, was, rates())
	require.Empty(t, d.specs)
	require.Len(t, heard.told, 1)
	require.Contains(t, heard.told[0].Error, "ingress_rate")

	src.notes = map[string]string{"ovn.kubernetes.io/ingress_rate": "40"}
	require.NoError(t, e.Replug(t.Context(), req.Pod))
	require.Contains(t, rates(), 40)
	require.Len(t, d.specs, 1)
}

// forgets has a Keeper hear of what is gone.
type forgets struct {
	unheard
	*upkeep.Keeper
}

func (f forgets) Detached(r core.Record) { f.Forget(r) }

// TestUnreadableRateIsForgotten with its pod, and not before.
func TestUnreadableRateIsForgotten(t *testing.T) {
	e := newEngine(t, &nics{})
	src := &noted{Source: e.Source}
	e.Drivers["ovs"], e.Source = &repaired{nics: &nics{}}, src
	req := add(t)
	req.Conf.Raw = []byte(`{"cniVersion":"1.0.0","name":"net","type":"fairlead"}`)
	heard := &failures{}
	keeper := upkeep.New(upkeep.Config{Journal: e.Journal, Source: src, Drivers: e.Drivers, BootID: e.BootID, Notices: heard, Log: e.Log})
	e.Tune, e.Notices = keeper.Tune, forgets{Keeper: keeper}
	for round := range 2 {
		src.notes = nil
		_, err := e.Add(t.Context(), req)
		require.NoError(t, err)
		src.notes = map[string]string{"ovn.kubernetes.io/ingress_rate": "fast"}
		for range 2 {
			require.NoError(t, e.Replug(t.Context(), req.Pod))
			rec, _ := e.Journal.Get(req.Key)
			keeper.Forget(rec) // as of an interface that went
		}
		require.Len(t, heard.told, round+1)
		require.NoError(t, e.Del(t.Context(), req))
	}
}
