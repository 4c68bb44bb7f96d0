package deviceplugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
)

// info is a device information file (NPWG device information specification, section 4).
type info struct {
	Type    string `json:"type"`
	Version string `json:"version"`
	PCI     struct {
		Address string `json:"pci-address"`
		PF      string `json:"pf-pci-address,omitempty"`
		Vhost   string `json:"vhost-net,omitempty"`
		RDMA    string `json:"rdma-device,omitempty"`
	} `json:"pci"`
}

// cdi is a specification of the Container Device Interface.
type cdi struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string `json:"name"`
	Edits struct {
		Nodes []cdiNode `json:"deviceNodes"`
	} `json:"containerEdits"`
}

type cdiNode struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
}

// describe writes the files that tell plugins and runtimes of the functions.
func (m *Manager) describe(s state) {
	for _, r := range s.plan.Resources {
		spec := cdi{Version: "0.5.0", Kind: r.Name}
		for _, f := range r.Functions {
			p := r.Of[f.PCI]
			file := filepath.Join(m.cfg.InfoDir, "dp", resolve.DevInfoName(r.Name, f.PCI))
			if err := keep(file, m.information(s, p, f)); err != nil {
				m.cfg.Log.Warn("device information not written: what pods are told of their networks lacks it", "file", file, "err", err)
			}
			if paths := m.paths(p, f); len(paths) > 0 && !r.Slot {
				d := cdiDevice{Name: f.PCI}
				for _, path := range paths {
					d.Edits.Nodes = append(d.Edits.Nodes, cdiNode{path, "rw"})
				}
				spec.Devices = append(spec.Devices, d)
			}
		}
		if m.cfg.CDIDir == "" || len(spec.Devices) == 0 {
			continue
		}
		file := filepath.Join(m.cfg.CDIDir, "fairlead-"+strings.ReplaceAll(r.Name, "/", "_")+".json")
		if err := keep(file, spec); err != nil {
			m.cfg.Log.Warn("CDI specification not written: pods of the resource do not start", "file", file, "err", err)
		}
	}
}

func (m *Manager) information(s state, p *vfpolicy.Policy, f vfpolicy.Function) info {
	out := info{Type: "pci", Version: "1.1.0"}
	out.PCI.Address = f.PCI
	for _, card := range s.cards {
		if card.Name == f.PF {
			out.PCI.PF = card.PCI
		}
	}
	if p.Spec.NeedVhostNet {
		out.PCI.Vhost = vhostNet[0]
	}
	if p.RDMA() {
		out.PCI.RDMA = strings.Join(f.RDMANodes, ",")
	}
	return out
}

// keep writes a file unless it says the same already.
func keep(file string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(file)
	if err == nil && string(have) == string(text) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return hostfile.Write(file, text, 0o644)
}
