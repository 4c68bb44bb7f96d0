// Package hostlocal is CNI's IPAM plugin host-local inside the agent: addresses
// of ranges that the configuration gives, each held by a file of the node. The
// files, their lock and the order in which addresses are given out are those of
// containernetworking/plugins v1.9.1, whose allocator it uses, so that the
// program and this package may take turns. It knows no interface.
package hostlocal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Name is the plugin's type.
const Name = "host-local"

// Plugin is host-local; make it with New.
type Plugin struct {
	folders *keylock.Queue
	indexes indexes
}

var (
	_ driver.PluginProver = (*Plugin)(nil)
	_ driver.Keeper       = (*Plugin)(nil)
)

// New makes the plugin.
func New() *Plugin { return &Plugin{folders: keylock.New()} }

// Accepts refuses keys that v1.9.1 does not know, and paths that depend on the
// program's working directory.
func (p *Plugin) Accepts(conf json.RawMessage) error {
	keys, err := cniconf.Keys(conf, "ipam")
	if err != nil {
		return err
	}
	err = cniconf.OnlyKeys(keys, "type", "routes", "dataDir", "resolvConf", "ranges", "subnet", "rangeStart", "rangeEnd", "gateway")
	if err != nil {
		return err
	}
	if err := acceptRanges(keys["ranges"]); err != nil {
		return err
	}
	for _, key := range []string{"dataDir", "resolvConf"} {
		var path string
		if raw, ok := keys[key]; ok && json.Unmarshal(raw, &path) != nil {
			return fmt.Errorf("key %q is not a string", key)
		}
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("key %q: %q is not absolute", key, path)
		}
	}
	return nil
}

// acceptRanges looks at the keys of every range.
func acceptRanges(raw json.RawMessage) error {
	var sets [][]map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &sets); err != nil {
			return fmt.Errorf("key \"ranges\": %w", err)
		}
	}
	for _, set := range sets {
		for _, keys := range set {
			if err := cniconf.OnlyKeys(keys, "subnet", "rangeStart", "rangeEnd", "gateway"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Prove implements driver.PluginProver.
func (p *Plugin) Prove(c driver.PluginCall) error {
	_, _, err := load(c)
	return err
}

// Add reserves an address of each set of ranges.
func (p *Plugin) Add(ctx context.Context, c driver.PluginCall) (json.RawMessage, error) {
	conf, version, err := load(c)
	if err != nil {
		return nil, err
	}
	res := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: conf.Routes}
	if conf.ResolvConf != "" {
		if res.DNS, err = readResolvConf(conf.ResolvConf); err != nil {
			return nil, failed(err)
		}
	}
	s, err := p.open(ctx, folder(conf), true)
	if err != nil {
		return nil, failed(err)
	}
	defer s.close()
	if res.IPs, err = s.reserve(conf, c.Key); err != nil {
		return nil, failed(err)
	}
	out, err := cniconf.Marshal(res, version)
	return out, failed(err)
}

// reserve takes an address of each set of ranges, or none at all: those asked
// for, each in the first set that has it, and the next free one elsewhere.
func (s *store) reserve(conf *allocator.IPAMConfig, key core.Key) (ips []*current.IPConfig, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.giveBack())
		}
	}()
	wanted := distinct(conf.IPArgs)
	for i, ranges := range conf.Ranges {
		var asked net.IP
		if at := slices.IndexFunc(wanted, ranges.Contains); at >= 0 {
			asked = wanted[at]
			wanted = slices.Delete(wanted, at, at+1)
		}
		ip, err := allocator.NewIPAllocator(&ranges, s, i).Get(key.Container, key.IfName, asked)
		if err != nil {
			return ips, fmt.Errorf("failed to allocate for range %d: %w", i, err)
		}
		ips = append(ips, ip)
	}
	if len(wanted) != 0 {
		text := "failed to allocate all requested IPs:"
		for _, ip := range wanted {
			text += " " + ip.String()
		}
		return ips, errors.New(text)
	}
	return ips, nil
}

// distinct leaves repetitions out.
func distinct(all []net.IP) (out []net.IP) {
	for _, ip := range all {
		if !slices.ContainsFunc(out, ip.Equal) {
			out = append(out, ip)
		}
	}
	return out
}

// Check proves that the attachment holds an address, and of those of prevResult
// that are of the ranges every one.
func (p *Plugin) Check(ctx context.Context, c driver.PluginCall) error {
	conf, _, err := load(c)
	if err != nil {
		return err
	}
	var held []net.IP
	s, err := p.open(ctx, folder(conf), false)
	if err == nil && s != nil {
		defer s.close()
		held = s.GetByID(c.Key.Container, c.Key.IfName)
	}
	if err == nil && len(held) == 0 {
		err = fmt.Errorf("host-local: Failed to find address added by container %v", c.Key.Container)
	}
	if err == nil {
		err = s.mine(c, conf, held)
	}
	return failed(err)
}

// mine proves that the addresses of prevResult are among those held.
func (s *store) mine(c driver.PluginCall, conf *allocator.IPAMConfig, held []net.IP) error {
	var prev inproc.Conf
	if err := json.Unmarshal(c.Conf, &prev); err != nil {
		return err
	}
	if len(prev.PrevResult) == 0 {
		return nil
	}
	res, err := inproc.Parse(prev.PrevResult, prev.CNIVersion)
	if err != nil {
		return err
	}
	var errs []error
	for _, got := range res.IPs {
		ip := net.IP(got.Address.Addr().AsSlice())
		ours := slices.ContainsFunc(conf.Ranges, func(set allocator.RangeSet) bool { return set.Contains(ip) })
		if ours && !slices.ContainsFunc(held, ip.Equal) {
			errs = append(errs, core.Differ("address %s is leased to %s", ip, s.holder(ip.String())))
		}
	}
	return errors.Join(errs...)
}

// holder says who has an address.
func (s *store) holder(name string) string {
	for owner, names := range s.index.owners {
		if slices.Contains(names, name) {
			return "container " + strings.ReplaceAll(owner, separator, ", ")
		}
	}
	return "nobody"
}

// Del frees what the attachment holds.
func (p *Plugin) Del(ctx context.Context, c driver.PluginCall) error {
	conf, _, err := load(c)
	if err != nil {
		return err
	}
	s, err := p.open(ctx, folder(conf), false)
	if err != nil || s == nil {
		return failed(err)
	}
	defer s.close()
	return failed(s.ReleaseByID(c.Key.Container, c.Key.IfName))
}

// GC frees the addresses whose files say nothing (each), and no others, as the
// program frees none: the folder may be used by networks and runtimes that the
// list of attachments does not have.
func (p *Plugin) GC(ctx context.Context, c driver.PluginCall) error {
	conf, _, err := load(c)
	if err != nil {
		return nil //nolint:nilerr // such a network never had an address
	}
	s, err := p.open(ctx, folder(conf), false)
	if s != nil {
		s.close()
	}
	return failed(err)
}

// Holders are the containers that hold an address of a network, whoever gave it:
// the files below dataDir ("" for the plugin's own) say so. A network without
// files has none.
func (p *Plugin) Holders(ctx context.Context, dataDir, network string) (map[string]bool, error) {
	s, err := p.open(ctx, folder(&allocator.IPAMConfig{DataDir: dataDir, Name: network}), false)
	if s == nil {
		return nil, err
	}
	defer s.close()
	ids := map[string]bool{}
	for owner := range s.index.owners {
		if id, _, _ := strings.Cut(owner, separator); id != "" {
			ids[id] = true
		}
	}
	return ids, nil
}

// Status is always well, as the program's.
func (p *Plugin) Status(context.Context, driver.PluginCall) error { return nil }

func load(c driver.PluginCall) (*allocator.IPAMConfig, string, error) {
	conf, version, err := allocator.LoadIPAMConfig(c.Conf, c.Args)
	if err != nil {
		return nil, "", inproc.Refused(err)
	}
	return conf, version, nil
}

// failed gives an error the code that the program would print.
func failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &core.Error{Code: inproc.CodeOther, Msg: err.Error(), Err: err}
}
