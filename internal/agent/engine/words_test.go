package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// bent finds differences on every interface.
type bent struct{ nics }

func (*bent) Check(context.Context, driver.Run, core.Spec, core.Link) error {
	return errors.Join(core.Difference("MTU in the pod is 1300, not 1400"), core.Difference("link in the pod is down"))
}

// TestCheckNamesEachDifferenceOnce: a line for each with its interface, one
// line for the runtime, no ids that the caller has anyway.
func TestCheckNamesEachDifferenceOnce(t *testing.T) {
	e, req := newEngine(t, &nics{}), add(t)
	e.Drivers = driver.Set{"ovs": &bent{}}
	_, err := e.Add(t.Context(), req)
	require.NoError(t, err)
	err = e.Check(t.Context(), core.Request{Key: req.Key})
	require.ErrorIs(t, err, core.ErrDrift)
	require.Equal(t, core.CodeDrift, core.CodeOf(err))
	require.EqualError(t, err, "CHECK: eth0: MTU in the pod is 1300, not 1400; eth0: link in the pod is down; "+
		"net1: MTU in the pod is 1300, not 1400; net1: link in the pod is down")
	require.EqualError(t, errors.Unwrap(err), "eth0: MTU in the pod is 1300, not 1400\neth0: link in the pod is down\n"+
		"net1: MTU in the pod is 1300, not 1400\nnet1: link in the pod is down")
}

// TestConflictNamesTheHolder: subnet, interface and holder, each once.
func TestConflictNamesTheHolder(t *testing.T) {
	e := newEngine(t, &nics{})
	holder := core.Owner{Key: core.Key{Container: "c9", IfName: "eth0"}, Pod: core.Pod{Namespace: "default", Name: "dns-0"}}
	subnets, err := e.Source.Subnets(t.Context())
	require.NoError(t, err)
	l, err := e.IPAM.Acquire(ipam.Request{Subnet: subnets[0], Owner: holder})
	require.NoError(t, err)
	wants := []core.Want{{IfName: "net1", Steps: []core.Step{{NIC: &core.NIC{Subnet: subnets[0], IPs: l.IPs}}}}}
	a := &addition{e: e, req: add(t), wants: wants}
	err = a.lease(t.Context())
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	require.EqualError(t, err, "address for net1 in subnet "+l.Subnet+": "+l.IPs[0].String()+" is held by pod default/dns-0 (eth0)")
}
