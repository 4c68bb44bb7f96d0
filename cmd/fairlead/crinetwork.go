package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/cni"
	"github.com/fairlead/fairlead/internal/netplugin/kubenet"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// pluginCNI is the default --network-plugin.
const pluginCNI = cni.Name

// defaultHairpin is not kubelet's promiscuous-bridge: that needs an older kernel.
const defaultHairpin = netplugin.HairpinVeth

func (o *criOptions) networkFlags(f *pflag.FlagSet) {
	f.StringVar(&o.plugin, "network-plugin", pluginCNI, "who gives pods their network: cni; kubenet for a bridge of our own, without other plugins; no-op for Docker's")
	f.StringVar(&o.pluginDir, "network-plugin-dir", "", "folder for both --cni-conf-dir and --cni-bin-dir where they are not given")
	f.StringVar(&o.confDir, "cni-conf-dir", "", "CNI configurations; the first valid one by name is used (default --network-plugin-dir, else "+runtimes.DefaultConfDir+")")
	f.StringSliceVar(&o.binDirs, "cni-bin-dir", nil, "where CNI plugins are, in order (default --network-plugin-dir, else "+runtimes.DefaultBinDir+")")
	f.DurationVar(&o.syncPeriod, "cni-sync-period", cni.SyncPeriod, "how often the configurations are read though nothing was seen to change")
	f.StringVar(&o.hairpin, "hairpin-mode", string(defaultHairpin), "how a pod reaches itself through a service: none, hairpin-veth, promiscuous-bridge (kubenet only; elsewhere hairpin-veth)")
	f.StringSliceVar(&o.nonMasquerade, "non-masquerade-cidr", []string{"10.0.0.0/8"}, "where pods' packets keep their source, one of each family; 0.0.0.0/0 and ::/0: everywhere (kubenet)")
	f.IntVar(&o.mtu, "network-plugin-mtu", 0, "MTU of pods in bytes; 0: the least of the node's links (kubenet)")
	f.StringVar(&o.podCIDR, "pod-cidr", "", "the node's pod CIDRs, a[,b], when kubelet does not tell them")
}

// choose makes the plugins and finds the one asked for.
func (o criOptions) network(log *slog.Logger) (netplugin.Plugin, netplugin.Settings, error) {
	settings, err := o.networkSettings()
	if err != nil {
		return nil, settings, err
	}
	plugin, err := netplugin.Choose([]netplugin.Plugin{
		netplugin.NewNoOp(netplugin.BridgeFilter{Load: modprobe, Log: log}), o.cni(log),
		kubenet.New(kubenet.Config{StateDir: filepath.Join(o.rootDir, "kubenet"), Load: modprobe, Log: log}),
	}, o.plugin)
	if plugin == nil {
		return nil, settings, hint.UsageError{Err: fmt.Errorf("--network-plugin: %w", err)}
	}
	if err != nil {
		log.Error("network plugins that cannot be chosen left out", "err", err)
	}
	return plugin, settings, nil
}

func (o criOptions) cni(log *slog.Logger) netplugin.Plugin {
	bins := o.binDirs
	if len(bins) == 0 {
		bins = []string{cmp.Or(o.pluginDir, runtimes.DefaultBinDir)}
	}
	return cni.New(cni.Config{
		ConfDir: cmp.Or(o.confDir, o.pluginDir, runtimes.DefaultConfDir), BinDirs: bins, CacheDir: filepath.Join(o.rootDir, "cni"),
		StateDir: filepath.Join(o.rootDir, "network"), SyncPeriod: o.syncPeriod, Log: log,
	})
}

func (o criOptions) networkSettings() (s netplugin.Settings, err error) {
	if s.Hairpin, err = netplugin.EffectiveHairpin(cmp.Or(o.hairpin, string(defaultHairpin)), o.plugin); err != nil {
		return s, hint.UsageError{Err: fmt.Errorf("--hairpin-mode: %w", err)}
	}
	if o.mtu < 0 {
		return s, hint.Usagef("--network-plugin-mtu %d is negative", o.mtu)
	}
	if o.syncPeriod < 0 {
		return s, hint.Usagef("--cni-sync-period %s is negative", o.syncPeriod)
	}
	if o.podCIDR != "" {
		if _, err := store.ParseCIDRs(o.podCIDR); err != nil {
			return s, hint.UsageError{Err: fmt.Errorf("--pod-cidr: %w", err)}
		}
	}
	s.MTU = o.mtu
	for _, text := range o.nonMasquerade {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return s, hint.UsageError{Err: fmt.Errorf("--non-masquerade-cidr: %w", err)}
		}
		s.NonMasquerade = append(s.NonMasquerade, p.Masked())
	}
	return s, nil
}

// modprobe loads a kernel module; built-in ones are success.
func modprobe(ctx context.Context, module string) error {
	out, err := exec.CommandContext(ctx, "modprobe", "--", module).CombinedOutput()
	if err != nil {
		return fmt.Errorf("modprobe %s: %w: %s", module, err, strings.TrimSpace(string(out)))
	}
	return nil
}
