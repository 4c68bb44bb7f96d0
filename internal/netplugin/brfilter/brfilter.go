// Package brfilter has the node's packet filter see what Linux bridges forward:
// translations for services must also happen between two pods of one bridge. It
// knows no plugin.
package brfilter

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// sysctls are those of the kernel module br_netfilter.
var sysctls = []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"}

// Filter is what it takes. Load loads a kernel module, Host is the node's
// namespace; nil: nobody does, and the process's own.
type Filter struct {
	Load func(ctx context.Context, module string) error
	Host *netns.Handle
	Log  *slog.Logger
}

// Enable never fails: a node without the module has pods too, and a kernel
// without IPv6 has one of the sysctls only.
func (f Filter) Enable(ctx context.Context) {
	if f.Load != nil {
		if err := f.Load(ctx, "br_netfilter"); err != nil {
			f.Log.Info("br_netfilter not loaded", "err", err)
		}
	}
	if err := f.Host.Do(func() error { f.set(); return nil }); err != nil {
		f.Log.Warn("bridged packets may pass the packet filter by", "err", err)
	}
}

func (f Filter) set() {
	for _, name := range sysctls {
		if err := sysfs.WriteSysctl(name, "1"); err != nil && !sysfs.SysctlMissing(err) {
			f.Log.Warn("bridged packets may pass the packet filter by", "err", err)
		}
	}
}
