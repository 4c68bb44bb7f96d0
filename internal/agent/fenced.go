package agent

import (
	"path/filepath"

	"github.com/fairlead/fairlead/internal/agent/fence"
	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	vfs "github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/source/cluster/lease"
)

// wireLeases makes the keeper of leases, and the fence that takes what they are about off the
// network.
func (d *Daemon) wireLeases(boot string, drivers driver.Set) {
	store := &lease.Store{Login: d.login, Node: d.opts.NodeName, BootID: boot, Namespace: d.opts.Chassis.Namespace}
	links := fence.Kernel{Inside: drivers.Inside, VFs: vfs.At("")}
	node := leases.Node{Name: d.opts.NodeName, BootID: boot, StateDir: d.opts.StateDir, Login: d.login, API: d.cluster, Declared: d.objects, Log: d.log}
	if d.opts.SelfFence {
		node.Fences = links.Can
	}
	d.leases = leases.ForNode(node, store)
	d.fence = fence.New(fence.Config{
		On: d.opts.SelfFence, BootID: boot, File: filepath.Join(d.opts.StateDir, "fence.json"), Now: netns.Boottime, Records: d.journal.Records, Links: links,
		Heartbeat: func() fence.Heartbeat {
			if d.api() == nil {
				return nil
			}
			return store
		},
		Reclaim: d.leases.Reclaim,
		Tell: func(pod core.Pod, note string) {
			if api := d.api(); api != nil {
				api.Warn(pod, core.ReasonFenced, note)
			}
		},
		Log: d.log,
	})
}
