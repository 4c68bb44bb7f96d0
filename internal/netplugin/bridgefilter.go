package netplugin

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// filterSysctls are those of the kernel module br_netfilter.
var filterSysctls = []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"}

// BridgeFilter has the node's packet filter see what Linux bridges forward:
// translations for services must also happen between two pods of one bridge. Load loads a kernel module, Host is the node's
// namespace; nil: nobody does, and the process's own.
type BridgeFilter struct {
	Load func(ctx context.Context, module string) error
	Host *netns.Handle
	Log  *slog.Logger
}

// Enable never fails: a node without the module has pods too, and a kernel
// without IPv6 has one of the sysctls only.
func (f BridgeFilter) Enable(ctx context.Context) {
	if f.Load != nil {
		if err := f.Load(ctx, "br_netfilter"); err != nil {
			f.Log.Info("kernel module br_netfilter not loaded: bridged packets are filtered only if the kernel has it already", "err", err)
		}
	}
	if err := f.Host.Do(func() error { f.set(); return nil }); err != nil {
		f.Log.Warn("bridge-nf-call not set: packets between pods of one bridge may bypass the packet filter", "err", err)
	}
}

func (f BridgeFilter) set() {
	for _, name := range filterSysctls {
		if err := sysfs.WriteSysctl(name, "1"); err != nil && !sysfs.SysctlMissing(err) {
			f.Log.Warn("bridge-nf-call not set: packets between pods of one bridge may bypass the packet filter", "err", err)
		}
	}
}
