package resolve

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
)

// device is the id of the network's device, "" for none: that of the element, else the
// one that the configuration of its first plugin names.
func (n *network) device() string {
	var conf struct {
		DeviceID string `json:"deviceID"`
	}
	if n.own == nil && len(n.chain.Plugins) > 0 {
		_ = json.Unmarshal(n.chain.Plugins[0].Raw, &conf) // its plugin tells what is wrong with it
	}
	return cmp.Or(n.elem.DeviceID, conf.DeviceID)
}

// ofPFs refuses devices of other physical functions than those that are declared.
func (r *resolution) ofPFs(nets []network) error {
	if r.in.Request.Op == core.Del {
		return nil
	}
	for i := range nets {
		if err := r.ofPF(&nets[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolution) ofPF(n *network) error {
	if n.own != nil || n.declared == nil || n.declared.SRIOV == nil || len(n.declared.SRIOV.PF) == 0 {
		return nil
	}
	s, id := n.declared, n.device()
	if r.in.PFOf == nil {
		return cannot(n, s, declared.PF)
	}
	if id == "" {
		return core.Reasoned(core.CodeDevice, core.ReasonNoDeviceRequested, "%s declares %s %v of interface %s, and the pod was given no device for network %s",
			s.From[declared.PF], declared.PF, s.SRIOV.PF, n.ifName, n.label)
	}
	pf, err := r.in.PFOf(id)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "%s declares %s %v of interface %s: %w", s.From[declared.PF], declared.PF, s.SRIOV.PF, n.ifName, err)
	case err != nil:
		return core.WithCode(core.CodeIO, n.field()+": physical function of its device", err)
	case !slices.Contains(s.SRIOV.PF, pf):
		return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "%s declares %s %v of interface %s, and the pod's device %s is of %s",
			s.From[declared.PF], declared.PF, s.SRIOV.PF, n.ifName, id, pf)
	}
	return nil
}
