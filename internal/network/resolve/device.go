package resolve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/override"
)

const (
	// DevInfoDir holds the device information files of device plugins (dp) and
	// CNI plugins (cni); NPWG device information specification v1.1, section 4.
	DevInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/"
	// maxDevInfo bounds a file's name, in bytes: NAME_MAX without the ending of
	// a file that is just being written.
	maxDevInfo = 250
	// capDevInfo and capDevice are what plugins may declare to be told of their
	// device (section 5.1; CNI conventions, "deviceID").
	capDevInfo = "CNIDeviceInfoFile"
	capDevice  = "deviceID"
)

// handOut gives each network whose NAD names a resource one of the devices of
// that resource that the pod was given, in the networks' order and none twice.
// An element that names its device keeps it, provided that it is the pod's: a
// tenant must not reach for the devices of others. On a node without kubelet,
// where nobody was given any, its word is enough.
func (r *resolution) handOut(ctx context.Context, nets []network) error {
	// A DEL works without: the plugin finds by its own records what it holds.
	wants := func(n network) bool { return n.resource != "" }
	if r.in.Request.Op == core.Del || !slices.ContainsFunc(nets, wants) {
		return nil
	}
	h := hand{given: map[string]string{}, choose: func(n *network, free []string) (Chosen, error) { return r.choose(ctx, n, free) }}
	h.have, h.err = r.allocated(ctx)
	for i := range nets {
		if err := h.keep(&nets[i]); err != nil {
			return err
		}
	}
	for i := range nets {
		if err := h.give(&nets[i]); err != nil {
			return err
		}
	}
	return nil
}

// allocated asks kubelet, once.
func (r *resolution) allocated(ctx context.Context) (map[string][]string, error) {
	if r.in.Devices == nil {
		return nil, core.Errorf(core.CodeDevice, "this node has no kubelet that gives devices: %w", core.ErrNotFound)
	}
	return r.in.Devices.Allocated(ctx, r.pod)
}

// hand deals out the pod's devices.
type hand struct {
	have  map[string][]string // by resource
	err   error               // why have is not all
	given map[string]string   // resource and id -> who has it
	// choose is resolution.choose.
	choose func(n *network, free []string) (Chosen, error)
}

// keep notes the device that an element names.
func (h *hand) keep(n *network) error {
	id := n.elem.DeviceID
	if id == "" {
		return nil
	}
	if n.resource == "" {
		// It may be one of any resource's: none of them is given it again.
		for resource := range h.have {
			h.given[resource+"\x00"+id] = n.field()
		}
		return nil
	}
	if by, ok := h.given[n.resource+"\x00"+id]; ok {
		return annotation.Refused(core.CodeConflict, n.field()+".deviceID", id, "is already the device of %s", by)
	}
	h.given[n.resource+"\x00"+id] = n.field()
	switch {
	case slices.Contains(h.have[n.resource], id), errors.Is(h.err, core.ErrNotFound):
		return nil
	case h.err != nil:
		return h.unknown(n)
	}
	return annotation.Refused(core.CodeDevice, n.field()+".deviceID", id, "is none of the devices of resource %s that kubelet gave this pod", n.resource)
}

// give takes the next device for a network that has none yet.
func (h *hand) give(n *network) error {
	if n.resource == "" || n.elem.DeviceID != "" {
		return nil
	}
	var free []string
	for _, id := range h.have[n.resource] {
		if _, ok := h.given[n.resource+"\x00"+id]; !ok {
			free = append(free, id)
		}
	}
	if len(free) > 0 {
		got, err := h.choose(n, free)
		if got.ID != "" || err != nil {
			h.given[n.resource+"\x00"+got.ID], n.elem.DeviceID = n.field(), got.Device
			return err
		}
	}
	if h.err != nil {
		return h.unknown(n)
	}
	what := fmt.Sprintf("network %s wants resource %s, of which kubelet gave this pod ", n.label, n.resource)
	why := "none"
	if has := len(h.have[n.resource]); has > 0 {
		why = fmt.Sprintf("%d, which other networks of the pod have", has)
	}
	return &core.Error{
		Code: core.CodeDevice, Msg: n.field() + ": " + what + why,
		Details: "request one for each such network in resources.limits of the pod's containers",
	}
}

// choose picks one of the ids that kubelet gave the pod and no other network has, and the
// device that it stands for: itself, unless somebody knows better. It is none where others
// have all.
func (r *resolution) choose(ctx context.Context, n *network, free []string) (Chosen, error) {
	by, ok := r.in.Devices.(Chooser)
	if !ok {
		return Chosen{ID: free[0], Device: free[0]}, nil
	}
	w := DeviceWish{Key: r.in.Request.Key, Resource: n.resource, IDs: free}
	w.Key.IfName = n.ifName
	w.PFs, _ = n.pfs()
	var rate struct {
		MinMbps int `json:"min_tx_rate"`
	}
	if len(n.chain.Plugins) > 0 && json.Unmarshal(n.chain.Plugins[0].Raw, &rate) == nil {
		w.MinMbps = rate.MinMbps
	}
	got, err := by.Choose(ctx, w)
	if err == nil {
		err = n.defaults(got.Defaults)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", n.field(), err)
	}
	return got, err
}

// defaults gives the configuration of a first plugin sriov keys that it does not say, and
// does not say either where nothing is declared of the pod.
func (n *network) defaults(keys map[string]any) error {
	if len(keys) == 0 || !n.gives(override.SRIOV) {
		return nil
	}
	first := n.chain.Plugins[0]
	raw, err := filled(keys, first.Raw)
	if err == nil && n.written != nil {
		n.written, err = filled(keys, n.written)
	}
	if err != nil {
		return core.Errorf(core.CodeConfig, "configuration of plugin %s: %w", first.Type, err)
	}
	first.Raw = raw
	n.chain.Plugins = slices.Concat([]core.Plugin{first}, n.chain.Plugins[1:])
	return nil
}

// filled is a configuration with keys that it does not say.
func filled(keys map[string]any, raw json.RawMessage) (json.RawMessage, error) {
	conf := maps.Clone(keys)
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, err
	}
	return json.Marshal(conf)
}

// unknown says that a network's devices cannot be told.
func (h *hand) unknown(n *network) error {
	code := core.CodeDevice
	if errors.Is(h.err, core.ErrUnavailable) {
		code = core.CodeTryAgain
	}
	return core.WithCode(code, fmt.Sprintf("%s: network %s wants resource %s", n.field(), n.label, n.resource), h.err)
}

// devInfo names the device information files of n's next plugin: a network has
// them when it has a device, and when one of its plugins asks for the file.
// The name is of this attachment alone, whatever is cut from its front.
func (r *resolution) devInfo(n *network) *core.DevInfo {
	if n.resource == "" && n.elem.DeviceID == "" && !n.can(capDevInfo) {
		return nil
	}
	info := &core.DevInfo{
		CNI: DevInfoDir + "cni/" + DevInfoName(n.label, r.in.Request.Key.Container, n.ifName), Shared: n.informed,
	}
	if n.resource != "" && n.elem.DeviceID != "" {
		info.DP = DevInfoDir + "dp/" + DevInfoName(n.resource, n.elem.DeviceID)
	}
	n.informed = true
	return info
}

// DevInfoName is the name of a device information file: of a resource and a device where a
// device plugin writes it (section 4).
func DevInfoName(parts ...string) string {
	name := strings.ReplaceAll(strings.Join(append(parts, "device.json"), "-"), "/", "-")
	return name[max(0, len(name)-maxDevInfo):]
}

// withDevice adds what plugins may ask to know of their device.
func withDevice(rc map[string]json.RawMessage, id string, info *core.DevInfo) map[string]json.RawMessage {
	if info == nil {
		return rc
	}
	out := maps.Clone(rc)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	out[capDevInfo], _ = json.Marshal(info.CNI) // strings always encode
	if id != "" {
		out[capDevice], _ = json.Marshal(id)
	}
	return out
}
