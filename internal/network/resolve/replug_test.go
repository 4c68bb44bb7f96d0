package resolve

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// present is what an annotation gives a pod: each network with its interface.
func present(t *testing.T, w *world, annotation string) []Present {
	t.Helper()
	w.note(networks, annotation)
	var out []Present
	for _, want := range resolved(t, w, nil)[1:] {
		require.NotEmpty(t, want.Request)
		out = append(out, Present{Request: want.Request, IfName: want.IfName})
	}
	return out
}

func change(t *testing.T, w *world, annotation string, have []Present, taken ...string) Change {
	t.Helper()
	w.note(networks, annotation)
	var fixed []Present
	for _, name := range append(taken, "eth0") {
		fixed = append(fixed, Present{IfName: name})
	}
	c, err := Replug(t.Context(), w, Input{Request: request()}, have, fixed)
	require.NoError(t, err)
	return c
}

func gone(c Change) (out []string) {
	for _, p := range c.Gone {
		out = append(out, p.IfName)
	}
	return out
}

func come(t *testing.T, c Change) (out []string) {
	t.Helper()
	for _, n := range c.Come {
		require.NoError(t, n.Err)
		require.NotEmpty(t, n.Want.Request)
		out = append(out, n.Want.IfName+" "+n.Network)
	}
	return out
}

// TestReplugMatchesByRequest: place and form of writing do not matter, and names
// of interfaces do not move.
func TestReplugMatchesByRequest(t *testing.T) {
	w := standard()
	have := present(t, w, "second,plain,plain@x0,second")
	require.Equal(t, []string{"net1", "net2", "x0", "net3"}, []string{have[0].IfName, have[1].IfName, have[2].IfName, have[3].IfName})
	c := change(t, w, `[{"name":"plain","interface":"x0"},{"name":"second","namespace":"default"},{"name":"plain","ips":null},{"name":"second"}]`, have)
	require.Empty(t, c.Gone)
	require.Empty(t, c.Come)

	c = change(t, w, "plain,second", have)
	require.Equal(t, []string{"x0", "net3"}, gone(c), "the first of two that are alike stays")
	require.Empty(t, c.Come)

	c = change(t, w, `[{"name":"second"},{"name":"second","mac":"02:00:00:00:00:07"},{"name":"foreign"},{"name":"plain","interface":"x0"}]`, have)
	require.Equal(t, []string{"net2", "net3"}, gone(c))
	require.Equal(t, []string{"net2 default/second", "net3 default/foreign"}, come(t, c), "names that are free now")

	c = change(t, w, "second,second,second", have[:1], "net2")
	require.Equal(t, []string{"net3 default/second", "net4 default/second"}, come(t, c), "net2 is another's")
	require.Empty(t, change(t, w, "", nil).Come)
	require.Len(t, change(t, w, "", have).Gone, 4)
}

// TestReplugOneByOne: what is wrong with one new network is told of it alone,
// and what is there is not asked about: its NAD may be gone.
func TestReplugOneByOne(t *testing.T) {
	w := standard()
	have := present(t, w, "second")
	delete(w.nads, "default/second")
	c := change(t, w, "second,nowhere,plain,junk", have)
	require.Empty(t, c.Gone)
	require.Len(t, c.Come, 3)
	require.ErrorIs(t, c.Come[0].Err, core.ErrNotFound)
	require.Equal(t, "default/nowhere", c.Come[0].Network)
	require.NoError(t, c.Come[1].Err)
	require.Equal(t, "net3", c.Come[1].Want.IfName, "the first that is free of those asked for")
	require.Error(t, c.Come[2].Err)
}

// TestReplugRefusesTheWhole: of an annotation that cannot be understood nothing
// is done, least of all taken away.
func TestReplugRefusesTheWhole(t *testing.T) {
	w := standard()
	have := present(t, w, "second")
	for _, bad := range []string{`[{"name":"second"`, "second,plain@a,plain@a", `[{"name":""}]`} {
		w.note(networks, bad)
		_, err := Replug(t.Context(), w, Input{Request: request()}, have, nil)
		require.Error(t, err)
		require.NotErrorIs(t, err, core.ErrNotFound)
	}
	down := errors.New("no route to the server")
	w.down = down
	_, err := Replug(t.Context(), w, Input{Request: request()}, have, nil)
	require.ErrorIs(t, err, down)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
}

// TestReplugOfAnotherPod: a pod that is gone, or whose name another one has, asks
// for nothing.
func TestReplugOfAnotherPod(t *testing.T) {
	w := standard()
	req := request()
	req.Pod.UID = "u0"
	_, err := Replug(t.Context(), w, Input{Request: req}, nil, nil)
	require.ErrorIs(t, err, core.ErrNotFound)
	require.Equal(t, core.CodeUnknown, core.CodeOf(err))
	delete(w.pods, "default/p")
	_, err = Replug(t.Context(), w, Input{Request: request()}, nil, nil)
	require.ErrorIs(t, err, core.ErrNotFound)
}

// given is kubelet with devices for one pod.
type given map[string][]string

func (g given) Allocated(context.Context, core.Pod) (map[string][]string, error) { return g, nil }

// TestReplugHandsNoDeviceOutTwice: a device that an interface has is not given
// to another.
func TestReplugHandsNoDeviceOutTwice(t *testing.T) {
	w := standard()
	w.nad("default/card", `{"cniVersion":"1.0.0","type":"host-device"}`)
	w.nads["default/card"].Annotations = map[string]string{"k8s.v1.cni.cncf.io/resourceName": "vendor/nic"}
	w.note(networks, "card,card")
	in := Input{Request: request(), Devices: given{"vendor/nic": {"a", "b"}}}
	wants, err := Resolve(t.Context(), w, in)
	require.NoError(t, err)
	have := []Present{{Request: wants[1].Request, IfName: "net1", Devices: []string{"b"}}}
	c, err := Replug(t.Context(), w, in, have, nil)
	require.NoError(t, err)
	require.Len(t, c.Come, 1)
	require.NoError(t, c.Come[0].Err)
	require.Contains(t, string(c.Come[0].Want.Steps[0].Exec.Conf), `"deviceID":"a"`)
	w.note(networks, "card,card,card")
	c, err = Replug(t.Context(), w, in, have, nil)
	require.NoError(t, err)
	require.NoError(t, c.Come[0].Err)
	require.Equal(t, core.CodeDevice, core.CodeOf(c.Come[1].Err))
}

// TestServes: only a configuration for all of a pod's networks has them follow
// the annotation.
func TestServes(t *testing.T) {
	require.True(t, Serves(core.Conf{Type: "fairlead"}))
	require.True(t, Serves(core.Conf{Type: "multus"}))
	require.False(t, Serves(core.Conf{Type: "kube-ovn"}))
	require.False(t, Serves(core.Conf{Type: "fairlead", Provider: "a.b.ovn"}))
	require.False(t, Serves(core.Conf{Type: "macvlan"}))
}
