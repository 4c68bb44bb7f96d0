package resolve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// kubelet gives devices from a table and counts how often it is asked.
type kubelet struct {
	ids   map[string][]string
	err   error
	asked []core.Pod
}

func (k *kubelet) Allocated(_ context.Context, p core.Pod) (map[string][]string, error) {
	k.asked = append(k.asked, p)
	return k.ids, k.err
}

const (
	resourceKey = "k8s.v1.cni.cncf.io/resourceName"
	defaultKey  = "v1.multus-cni.io/default-network"
	statusless  = `{"cniVersion":"1.0.0","plugins":[{"type":"vf","capabilities":{"CNIDeviceInfoFile":true,"deviceID":true}},{"type":"tuning"}]}`
)

// equipped is the standard world and some NADs with resources.
func equipped() *world {
	w := standard()
	for key, resource := range map[string]string{
		"default/a": "example.com/nic", "default/b": "example.com/nic", "default/g": "example.com/gpu", "kube-system/main": "example.com/nic",
	} {
		w.nad(key, statusless)
		w.nads[key].Annotations = map[string]string{resourceKey: resource}
	}
	w.nad("default/user", statusless)
	w.nad("default/ours", `{"cniVersion":"1.0.0","type":"kube-ovn","provider":"second.default.ovn"}`)
	w.nads["default/ours"].Annotations = map[string]string{resourceKey: "example.com/nic"}
	return w
}

// dealt resolves and tells "<network>=<device>" for each foreign plugin that
// begins a chain, having proved that the whole chain has the same device.
func dealt(t *testing.T, w *world, k *kubelet, change func(*core.Request)) ([]string, error) {
	t.Helper()
	req := request()
	if change != nil {
		change(&req)
	}
	in := Input{Request: req}
	if k != nil {
		in.Devices = k
	}
	wants, err := Resolve(t.Context(), w, in)
	var out []string
	for _, want := range wants {
		var ids []string
		for _, s := range want.Steps {
			if s.Exec == nil {
				continue
			}
			var c struct{ DeviceID, PCIBusID string }
			require.NoError(t, json.Unmarshal(s.Exec.Conf, &c))
			require.Equal(t, c.DeviceID, c.PCIBusID)
			if len(ids) > 0 {
				require.Equal(t, ids[0], c.DeviceID)
			}
			ids = append(ids, c.DeviceID)
		}
		if len(ids) > 0 {
			out = append(out, want.Network+"="+ids[0])
		}
	}
	return out, err
}

func nics(ids ...string) *kubelet { return &kubelet{ids: map[string][]string{"example.com/nic": ids}} }

// Rule 8: in order, never twice in one pod, default-network included, one call.
func TestDevicesAreHandedOutInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		notes []string
		k     *kubelet
		want  []string
	}{
		"in order":         {[]string{networks, "a,b"}, nics("n1", "n2"), []string{"default/a=n1", "default/b=n2"}},
		"one NAD twice":    {[]string{networks, "a,a"}, nics("n1", "n2", "n3"), []string{"default/a=n1", "default/a=n2"}},
		"several kinds":    {[]string{networks, "a,g,plain,b"}, &kubelet{ids: map[string][]string{"example.com/nic": {"0", "1"}, "example.com/gpu": {"0"}}}, []string{"default/a=0", "default/g=0", "default/plain=", "default/b=1"}},
		"default first":    {[]string{defaultKey, "main", networks, "b"}, nics("n1", "n2"), []string{"kube-system/main=n1", "default/b=n2"}},
		"own first":        {[]string{networks, `[{"name":"a"},{"name":"b","deviceID":"n1"}]`}, nics("n1", "n2"), []string{"default/a=n2", "default/b=n1"}},
		"own elsewhere":    {[]string{networks, `[{"name":"a"},{"name":"plain","deviceID":"n1"}]`}, nics("n1", "n2"), []string{"default/a=n2", "default/plain=n1"}},
		"error of another": {[]string{networks, "a"}, &kubelet{ids: map[string][]string{"example.com/nic": {"n1"}}, err: core.ErrUnavailable}, []string{"default/a=n1"}},
		"own, no kubelet":  {[]string{networks, `[{"name":"b","deviceID":"n7"}]`}, nil, []string{"default/b=n7"}},
	} {
		w := equipped()
		w.note(c.notes...)
		got, err := dealt(t, w, c.k, nil)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
		if c.k != nil {
			require.Equal(t, []core.Pod{{Namespace: "default", Name: "p", UID: "u1"}}, c.k.asked, "%s: one question, with the pod's UID", name)
		}
	}
}

func TestKubeletIsNotAskedForNetworksWithoutResource(t *testing.T) {
	w, k := equipped(), nics()
	w.note(networks, `[{"name":"plain","deviceID":"n1"},{"name":"user"}]`)
	got, err := dealt(t, w, k, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"default/plain=n1", "default/user="}, got)
	require.Empty(t, k.asked)
}

// A DEL without record must not depend on what kubelet still knows.
func TestDELNeedsNoDevices(t *testing.T) {
	w, k := equipped(), &kubelet{err: core.Errorf(core.CodeDevice, "pod not found")}
	w.note(networks, "a")
	got, err := dealt(t, w, k, func(r *core.Request) { r.Op = core.Del })
	require.NoError(t, err)
	require.Equal(t, []string{"default/a="}, got)
	require.Empty(t, k.asked)
}

func TestDevicesThatThePodHasNotAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		k     *kubelet
		code  uint
		notes string
		words []string
	}{
		"none":       {nics(), 104, "a", []string{networks + "[0]", "network default/a wants resource example.com/nic, of which kubelet gave this pod none"}},
		"too few":    {nics("n1"), 104, "a,b", []string{networks + "[1]", "default/b", "gave this pod 1,"}},
		"no kubelet": {nil, 104, "a", []string{"default/a", "example.com/nic", "no kubelet"}},
		"refused":    {&kubelet{err: core.Errorf(core.CodeDevice, "pod p not found")}, 104, "a", []string{"default/a", "pod p not found"}},
		"not now":    {&kubelet{err: core.Errorf(core.CodeTryAgain, "kubelet: refused")}, 11, "a", []string{"default/a", "kubelet: refused"}},
		"slices":     {&kubelet{ids: map[string][]string{"other": {"x"}}, err: core.ErrUnavailable}, 11, "a", []string{"default/a", "unavailable"}},
		"foreign":    {nics("n1"), 104, `[{"name":"a","deviceID":"n2"}]`, []string{networks + "[0].deviceID", `"n2"`, "example.com/nic"}},
		"unproven":   {&kubelet{err: core.Errorf(core.CodeTryAgain, "kubelet: refused")}, 11, `[{"name":"a","deviceID":"n2"}]`, []string{"default/a"}},
		"own twice":  {nics("n1"), 105, `[{"name":"a","deviceID":"n1"},{"name":"b","deviceID":"n1"}]`, []string{networks + "[1].deviceID", `"n1"`, networks + "[0]"}},
		"our NIC":    {nics("n1"), 104, "ours", []string{networks + "[0].deviceID", "default/ours"}},
	} {
		w := equipped()
		w.note(networks, c.notes)
		_, err := dealt(t, w, c.k, nil)
		require.Equal(t, c.code, core.CodeOf(err), "%s: %v", name, err)
		for _, word := range c.words {
			require.ErrorContains(t, err, word, name)
		}
	}
}

// NPWG device information specification v1.1, sections 4 and 5.
func TestDeviceInformationFilesAreNamedForTheAttachment(t *testing.T) {
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/"
	w := equipped()
	w.note(networks, `[{"name":"a"},{"name":"plain"},{"name":"plain","deviceID":"0000:03:02.0"},{"name":"user","interface":"u0"}]`)
	wants, err := Resolve(t.Context(), w, Input{Request: request(), Devices: nics("vf/1")})
	require.NoError(t, err)

	cni := dir + "cni/default-a-0123456789abcdef-net1-device.json"
	first, second := wants[1].Steps[0].Exec, wants[1].Steps[1].Exec
	require.Equal(t, &core.DevInfo{DP: dir + "dp/example.com-nic-vf-1-device.json", CNI: cni}, first.DevInfo)
	require.Equal(t, &core.DevInfo{DP: dir + "dp/example.com-nic-vf-1-device.json", CNI: cni, Shared: true}, second.DevInfo)
	require.JSONEq(t, `{"name":"a","cniVersion":"1.0.0","type":"vf","capabilities":{"CNIDeviceInfoFile":true,"deviceID":true},
		"deviceID":"vf/1","pciBusID":"vf/1","runtimeConfig":{"CNIDeviceInfoFile":"`+cni+`","deviceID":"vf/1"}}`, string(first.Conf))
	require.NotContains(t, string(second.Conf), "CNIDeviceInfoFile", "it did not ask for it")

	require.Nil(t, wants[2].Steps[0].Exec.DevInfo, "no device and nobody who asks")
	require.Equal(t, &core.DevInfo{CNI: dir + "cni/default-plain-0123456789abcdef-net3-device.json"}, wants[3].Steps[0].Exec.DevInfo)
	// a plugin without device may have information of its own to give
	require.Equal(t, &core.DevInfo{CNI: dir + "cni/default-user-0123456789abcdef-u0-device.json"}, wants[4].Steps[0].Exec.DevInfo)
	require.Contains(t, string(wants[4].Steps[0].Exec.Conf), `"CNIDeviceInfoFile":"`+dir+`cni/default-user`)
}

func TestNamesOfDeviceInformationFilesFitIntoAFolder(t *testing.T) {
	long := strings.Repeat("n", 253)
	id := strings.Repeat("c", 64)
	r := &resolution{}
	r.in.Request.Key.Container = id
	a := r.devInfo(&network{label: "ns/" + long, ifName: "net1", resource: "r"})
	b := r.devInfo(&network{label: "ns/" + long, ifName: "net2", resource: "r"})
	require.NotEqual(t, a.CNI, b.CNI)
	require.True(t, strings.HasSuffix(a.CNI, fmt.Sprintf("-%s-net1-device.json", id)))
	require.Len(t, strings.TrimPrefix(a.CNI, DevInfoDir+"cni/"), maxDevInfo)
}

// Rule 8 holds for a running pod too: what its interfaces have, that of the
// default network included, is not given again.
func TestHotPluggedNetworksGetFreeDevices(t *testing.T) {
	w, k := equipped(), nics("n1", "n2", "n3")
	w.note(defaultKey, "main", networks, "a")
	wants, err := Resolve(t.Context(), w, Input{Request: request(), Devices: k})
	require.NoError(t, err)
	have := []Present{{Request: wants[1].Request, IfName: "net1", Devices: []string{"n2"}}}
	fixed := []Present{{IfName: "eth0", Devices: []string{"n1"}}}

	w.note(networks, "b,a,b")
	change, err := Replug(t.Context(), w, Input{Request: request(), Devices: k}, have, fixed)
	require.NoError(t, err)
	require.Empty(t, change.Gone)
	require.Len(t, change.Come, 2)
	require.NoError(t, change.Come[0].Err)
	require.Contains(t, string(change.Come[0].Want.Steps[0].Exec.Conf), `"deviceID":"n3"`)
	require.Equal(t, core.CodeDevice, core.CodeOf(change.Come[1].Err), "%v", change.Come[1].Err)

	w.note(networks, "b")
	change, err = Replug(t.Context(), w, Input{Request: request(), Devices: k}, have, fixed)
	require.NoError(t, err)
	require.Equal(t, have, change.Gone)
	require.Contains(t, string(change.Come[0].Want.Steps[0].Exec.Conf), `"deviceID":"n2"`, "what goes frees its device")
}

// chooser is a kubelet whose devices of one resource are places.
type chooser struct {
	*kubelet

	wishes []DeviceWish
	of     map[string]string // devices by place
	err    error
}

// Choose implements Chooser.
func (c *chooser) Choose(_ context.Context, w DeviceWish) (Chosen, error) {
	c.wishes = append(c.wishes, w)
	for _, id := range w.IDs {
		if d := c.of[id]; d != "" {
			return Chosen{ID: id, Device: d, Defaults: map[string]any{"vlan": 7, "trust": "on"}}, nil
		}
	}
	return Chosen{}, c.err
}

// TestPlaces: a place is a device by the time that plugins and files hear of it. Who chooses
// is told what the interface wants; what the network says counts more than the device's
// own settings.
func TestPlaces(t *testing.T) {
	w := equipped()
	for _, key := range []string{"default/a", "default/b"} {
		w.nad(key, `{"cniVersion":"1.0.0","type":"sriov","vlan":0,"min_tx_rate":50}`)
		w.nads[key].Annotations = map[string]string{resourceKey: "example.com/nic"}
	}
	w.note(networks, "a,b")
	c := &chooser{kubelet: nics("n0-0", "n0-1"), of: map[string]string{"n0-0": "0000:01:10.0", "n0-1": "0000:01:10.1"}}
	wants, err := Resolve(t.Context(), w, Input{Request: request(), Devices: c})
	require.NoError(t, err)
	x := wants[2].Steps[0].Exec
	require.JSONEq(t, `{"cniVersion":"1.0.0","name":"b","type":"sriov","vlan":0,"trust":"on","min_tx_rate":50,"deviceID":"0000:01:10.1","pciBusID":"0000:01:10.1"}`, string(x.Conf))
	require.Contains(t, x.DevInfo.DP, "example.com-nic-0000:01:10.1-device.json")
	require.Equal(t, DeviceWish{Key: core.Key{Container: request().Key.Container, IfName: "net2"}, Resource: "example.com/nic", IDs: []string{"n0-1"}, MinMbps: 50}, c.wishes[1])

	wants, err = Resolve(t.Context(), w, Input{Request: request(), Devices: c, Declared: said([]string{`{"interface":"net2","max_tx_rate":60}`})})
	require.NoError(t, err)
	x = wants[2].Steps[0].Exec
	plain := `{"cniVersion":"1.0.0","name":"b","type":"sriov","vlan":0,"trust":"on","min_tx_rate":50,"deviceID":"0000:01:10.1","pciBusID":"0000:01:10.1"}`
	require.JSONEq(t, plain, string(x.Plain), "what the VF goes back to when nothing is declared any more")
	require.JSONEq(t, strings.Replace(plain, `50`, `50,"max_tx_rate":60`, 1), string(x.Conf))

	c.of, c.err = nil, core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "none")
	_, err = Resolve(t.Context(), w, Input{Request: request(), Devices: c})
	require.Equal(t, core.ReasonNoVFMatches, core.ReasonOf(err))
	require.ErrorContains(t, err, "networks[0]")
	c.err = nil
	_, err = Resolve(t.Context(), w, Input{Request: request(), Devices: c})
	require.ErrorContains(t, err, "2, which other networks of the pod have")
}
