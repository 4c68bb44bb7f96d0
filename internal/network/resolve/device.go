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
)

const (
	// devInfoDir holds the device information files of device plugins (dp) and
	// CNI plugins (cni); NPWG device information specification v1.1, section 4.
	devInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/"
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
	h := hand{given: map[string]string{}}
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
	for _, id := range h.have[n.resource] {
		if _, ok := h.given[n.resource+"\x00"+id]; !ok {
			h.given[n.resource+"\x00"+id] = n.field()
			n.elem.DeviceID = id
			return nil
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
		CNI: devInfoDir + "cni/" + devInfoName(n.label, r.in.Request.Key.Container, n.ifName), Shared: n.informed,
	}
	if n.resource != "" && n.elem.DeviceID != "" {
		info.DP = devInfoDir + "dp/" + devInfoName(n.resource, n.elem.DeviceID)
	}
	n.informed = true
	return info
}

func devInfoName(parts ...string) string {
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
