package view

import (
	"fmt"
	"io"

	"github.com/fairlead/fairlead/api/agent"
)

// VFs writes a line for each virtual function: who has it, with what.
func VFs(w io.Writer, list agent.VFList, o Options) error {
	t := newTable(w, o, []string{"PF", "VF", "PCI", "DRIVER", "DEVICE", "RESOURCE", "POD", "INTERFACE", "MAC", "VLAN", "RATE(min/max)", "SPOOFCHK", "TRUST", "HEALTH"}, nil)
	for _, v := range list.Items {
		pod, health := "", "Healthy"
		if v.Pod != "" {
			pod = v.Namespace + "/" + v.Pod
		} else if v.Container != "" {
			pod = short(v.Container)
		}
		switch {
		case v.Unhealthy != "":
			health = "Unhealthy: " + v.Unhealthy
		case v.Resource == "":
			health = ""
		}
		cells := []string{v.PF, fmt.Sprint(v.Index), v.PCI, v.Driver, v.Netdev, v.Resource, pod, v.IfName, "", "", "", "", "", health}
		if a := v.Attributes; a != nil {
			copy(cells[8:], []string{a.MAC, number(a.VLAN), minMax(a), onOff(a.SpoofChk), onOff(a.Trust)})
		}
		t.row(o, cells, nil)
	}
	if err := t.end(); err != nil {
		return err
	}
	p := &page{}
	for _, f := range list.Failed {
		p.line("cannot tell: %s", f)
	}
	return p.end(w)
}

func minMax(a *agent.VFAttributes) string {
	if a.MinMbps == 0 && a.MaxMbps == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", a.MinMbps, a.MaxMbps)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
