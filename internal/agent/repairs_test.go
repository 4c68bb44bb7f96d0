package agent

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/ovs"
)

// TestUnrepairedPortOfGonePod: a port that could not be put right is no fault of the node any
// more when its pod, or that interface, is gone, while Open vSwitch is away too; another's is.
func TestUnrepairedPortOfGonePod(t *testing.T) {
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	j, err := journal.Open(dir, journal.Options{Log: log})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	d := &Daemon{
		journal: j, ovs: ovs.New(ovs.Config{Endpoint: "unix:" + filepath.Join(dir, "none"), Log: log}),
		repairs: newRepairs(log, func(string, error) {}),
	}
	d.portRepairs = newPortRepairs(d)
	of := func(pod string, nics ...string) core.Record {
		r := core.Record{Key: core.Key{Container: pod, IfName: "eth0"}, Pod: core.Pod{Namespace: "ns", Name: pod}, Phase: core.Added}
		for _, nic := range nics {
			r.Specs = append(r.Specs, core.Spec{Key: core.Key{Container: pod, IfName: nic}})
		}
		return r
	}
	a, b := of("a", "eth0"), of("b", "eth0", "net1")
	for _, r := range []core.Record{a, b} {
		require.NoError(t, j.Begin(t.Context(), r))
		for _, s := range r.Specs {
			d.repairs.done(partPort, portOf(r, s), nil, errors.New("refused"))
		}
	}
	d.repairs.done(partGateway, "gateway", nil, errors.New("refused"))
	bad := func() (out []string) {
		d.portRepairs.repair(t.Context(), []string{})
		for _, err := range d.repairs.unrepaired(partPort) {
			out = append(out, err.Error())
		}
		return out
	}
	require.Len(t, bad(), 3)
	require.NoError(t, j.Forget(t.Context(), a.Key, nil))
	require.NoError(t, j.Save(t.Context(), of("b", "eth0")))
	require.Equal(t, []string{"port eth0 of pod ns/b: refused"}, bad())
	require.Len(t, d.repairs.unrepaired(partGateway), 1)
}
