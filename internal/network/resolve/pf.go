package resolve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

// pfs are the physical functions of which the network's device is to be, none for any, and
// who says so: what is declared counts more than what annotations ask for.
func (n *network) pfs() (all []string, says string) {
	if d := n.declared; d != nil && d.SRIOV != nil && len(d.SRIOV.PF) > 0 {
		return d.SRIOV.PF, fmt.Sprintf("%s declares %s %v", d.From[declared.PF], declared.PF, d.SRIOV.PF)
	}
	return n.vf.PFs, fmt.Sprintf("%s asks for %v", n.vf.PFsAt, n.vf.PFs)
}

// ofPFs refuses devices of other physical functions than those that are declared or asked for.
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
	all, says := n.pfs()
	if n.own != nil || len(all) == 0 {
		return nil
	}
	id := n.device()
	switch {
	case r.in.PFOf == nil && n.declared != nil && n.declared.From[declared.PF] != "":
		return cannot(n, n.declared, declared.PF)
	case r.in.PFOf == nil:
		return core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "%s of interface %s, and no plugin of network %s can set it", says, n.ifName, n.label)
	case id == "":
		return core.Reasoned(core.CodeDevice, core.ReasonNoDeviceRequested, "%s of interface %s, and the pod was given no device for network %s", says, n.ifName, n.label)
	}
	pf, err := r.in.PFOf(id)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "%s of interface %s: %w", says, n.ifName, err)
	case err != nil:
		return core.WithCode(core.CodeIO, n.field()+": physical function of its device", err)
	case !slices.Contains(all, pf):
		return core.Reasoned(core.CodeDevice, core.ReasonNoVFMatches, "%s of interface %s, and the pod's device %s is of %s", says, n.ifName, id, pf)
	}
	return nil
}
