// Package static is CNI's IPAM plugin static inside the agent: the addresses
// that the configuration, or who calls, names. It keeps nothing. What it reads
// and answers is what containernetworking/plugins v1.9.1 does.
package static

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Name is the plugin's type.
const Name = "static"

// Plugin is static.
type Plugin struct{}

var _ driver.PluginProver = Plugin{}

// network is the part of a configuration that concerns addresses.
type network struct {
	CNIVersion string `json:"cniVersion"`
	IPAM       *struct {
		Routes    []*types.Route `json:"routes"`
		Addresses []address      `json:"addresses"`
		DNS       types.DNS      `json:"dns"`
	} `json:"ipam"`
	RuntimeConfig struct {
		IPs []string `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	PrevResult json.RawMessage `json:"prevResult"`
}

type address struct {
	Text    string    `json:"address"`
	Gateway net.IP    `json:"gateway"`
	net     net.IPNet // with the address's own bits
}

// Accepts refuses keys that v1.9.1 does not know.
func (Plugin) Accepts(conf json.RawMessage) error {
	keys, err := cniconf.Keys(conf, "ipam")
	if err != nil {
		return err
	}
	if err := cniconf.OnlyKeys(keys, "type", "routes", "addresses", "dns"); err != nil {
		return err
	}
	var list []map[string]json.RawMessage
	if raw, ok := keys["addresses"]; ok {
		if err := json.Unmarshal(raw, &list); err != nil {
			return fmt.Errorf("key \"addresses\": %w", err)
		}
	}
	for _, a := range list {
		if err := cniconf.OnlyKeys(a, "address", "gateway"); err != nil {
			return err
		}
	}
	return nil
}

// Prove implements driver.PluginProver.
func (Plugin) Prove(c driver.PluginCall) error {
	_, err := load(c)
	return err
}

// Add answers the addresses, routes and DNS settings.
func (Plugin) Add(_ context.Context, c driver.PluginCall) (json.RawMessage, error) {
	n, err := load(c)
	if err != nil {
		return nil, err
	}
	res := &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: n.IPAM.DNS, Routes: n.IPAM.Routes}
	for _, a := range n.IPAM.Addresses {
		res.IPs = append(res.IPs, &current.IPConfig{Address: a.net, Gateway: a.Gateway})
	}
	if n.CNIVersion == "" {
		n.CNIVersion = "0.1.0"
	}
	out, err := res.GetAsVersion(n.CNIVersion)
	if err != nil {
		return nil, failed("%w", err)
	}
	return json.Marshal(out)
}

// Check proves that an address of the result still has the gateway that the
// configuration gives it.
func (Plugin) Check(_ context.Context, c driver.PluginCall) error {
	n, err := load(c)
	if err != nil {
		return err
	}
	if len(n.PrevResult) == 0 {
		return failed("Required prevResult missing")
	}
	conf := types.NetConf{CNIVersion: n.CNIVersion}
	if err := json.Unmarshal(n.PrevResult, &conf.RawPrevResult); err != nil {
		return failed("prevResult: %w", err)
	}
	if err := version.ParsePrevResult(&conf); err != nil {
		return failed("%w", err)
	}
	res, err := current.NewResultFromResult(conf.PrevResult)
	if err != nil {
		return failed("%w", err)
	}
	for _, a := range n.IPAM.Addresses {
		if err := a.check(res.IPs, c.Key.IfName); err != nil {
			return err
		}
	}
	return nil
}

func (a address) check(ips []*current.IPConfig, ifName string) error {
	for _, ip := range ips {
		switch {
		case ip == nil || !a.net.IP.Equal(ip.Address.IP):
		case a.Gateway == nil || a.Gateway.Equal(ip.Gateway):
			return nil
		default:
			return failed("static: Failed to match addr %v on interface %v", ip.Address.IP, ifName)
		}
	}
	return nil
}

// Del has nothing to free.
func (Plugin) Del(context.Context, driver.PluginCall) error { return nil }

// GC has nothing to free.
func (Plugin) GC(context.Context, driver.PluginCall) error { return nil }

// Status is always well.
func (Plugin) Status(context.Context, driver.PluginCall) error { return nil }

// load reads the configuration. Addresses of CNI_ARGS join its own; those of
// args, and those of runtimeConfig over them, take their place.
func load(c driver.PluginCall) (*network, error) {
	n, err := decode(c)
	return n, inproc.Refused(err)
}

func decode(c driver.PluginCall) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(c.Conf, n); err != nil {
		return nil, err
	}
	if n.IPAM == nil {
		return nil, errors.New("IPAM config missing 'ipam' key")
	}
	if err := n.fromArgs(c.Args); err != nil {
		return nil, err
	}
	for _, texts := range [][]string{n.Args.CNI.IPs, n.RuntimeConfig.IPs} {
		if len(texts) == 0 {
			continue
		}
		n.IPAM.Addresses = make([]address, len(texts))
		for i, text := range texts {
			var err error
			if n.IPAM.Addresses[i], err = parse(text, "an entry in the 'ips' field is NOT in CIDR notation, got: '%s'"); err != nil {
				return nil, err
			}
		}
	}
	err := n.complete()
	return n, err
}

// fromArgs adds the addresses of CNI_ARGS; the gateways there are theirs alone.
func (n *network) fromArgs(args string) error {
	var env struct {
		types.CommonArgs
		IP, GATEWAY types.UnmarshallableString
	}
	if args == "" {
		return nil
	}
	if err := types.LoadArgs(args, &env); err != nil {
		return err
	}
	for text := range fields(env.IP) {
		a, err := parse(text, "the 'ip' field is expected to be in CIDR notation, got: '%s'")
		if err != nil {
			return err
		}
		n.IPAM.Addresses = append(n.IPAM.Addresses, a)
	}
	for text := range fields(env.GATEWAY) {
		gw := net.ParseIP(text)
		if gw == nil {
			return fmt.Errorf("invalid gateway address: %s", text)
		}
		for i := range n.IPAM.Addresses {
			if n.IPAM.Addresses[i].net.Contains(gw) {
				n.IPAM.Addresses[i].Gateway = gw
			}
		}
	}
	return nil
}

// fields are the parts of a list with commas.
func fields(list types.UnmarshallableString) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if list == "" {
			return
		}
		for part := range strings.SplitSeq(string(list), ",") {
			if !yield(strings.TrimSpace(part)) {
				return
			}
		}
	}
}

// complete reads the addresses that stand in the configuration itself.
func (n *network) complete() error {
	families := map[int]int{}
	for i := range n.IPAM.Addresses {
		a := &n.IPAM.Addresses[i]
		if a.net.IP == nil {
			read, err := parse(a.Text, "the 'address' field is expected to be in CIDR notation, got: '%s'")
			if err != nil {
				return err
			}
			a.net = read.net
		}
		if v4 := a.net.IP.To4(); v4 != nil {
			a.net.IP = v4
		}
		families[len(a.net.IP)]++
	}
	if families[net.IPv4len] > 1 || families[net.IPv6len] > 1 {
		if ok, _ := version.GreaterThanOrEqualTo(n.CNIVersion, "0.3.0"); !ok {
			return fmt.Errorf("CNI version %v does not support more than 1 address per family", n.CNIVersion)
		}
	}
	return nil
}

// parse reads an address with its length; format is for what is none.
func parse(text, format string) (address, error) {
	ip, subnet, err := net.ParseCIDR(text)
	if err != nil {
		return address{}, fmt.Errorf(format, text)
	}
	return address{Text: text, net: net.IPNet{IP: ip, Mask: subnet.Mask}}, nil
}

// failed makes an error with the code that the program would print.
func failed(format string, args ...any) error {
	return core.Errorf(inproc.CodeOther, format, args...)
}
