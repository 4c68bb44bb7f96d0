package kubenet

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// cniVersion of the configuration by which a pod is attached.
const cniVersion = "1.0.0"

// network is the configuration of the CNI plugin bridge.
func (p *Plugin) network(cidrs []netip.Prefix) (json.RawMessage, error) {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, c := range cidrs {
		ranges = append(ranges, []map[string]string{{"subnet": c.String()}})
		routes = append(routes, map[string]string{"dst": core.Anywhere(c.Addr()).String()})
	}
	return json.Marshal(map[string]any{
		"cniVersion": cniVersion, "name": Name, "type": "bridge", "bridge": Bridge, "mtu": p.settings.MTU,
		"isGateway": true, "ipMasq": false,
		// The node may have been given another pod CIDR.
		"forceAddress": true,
		"hairpinMode":  p.settings.Hairpin == netplugin.HairpinVeth,
		"promiscMode":  p.settings.Hairpin == netplugin.PromiscuousBridge,
		"ipam":         map[string]any{"type": "host-local", "dataDir": p.conf.DataDir, "ranges": ranges, "routes": routes},
	})
}

// call is what the plugins bridge and host-local are told of r.
func (p *Plugin) call(r store.Record) driver.PluginCall {
	c := driver.PluginCall{
		Conf: r.Conf, Key: core.Key{Container: r.Pod.Sandbox, IfName: netplugin.IfName}, Netns: r.Netns,
	}
	ask := c
	c.IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error) {
		return driver.Perform(ctx, p.ipam, op, ask)
	}
	return c
}

// attach gives the pod its interface, and the record what came of it.
func (p *Plugin) attach(ctx context.Context, r *store.Record) error {
	out, err := p.bridge.Add(ctx, p.call(*r))
	if errors.Is(err, core.ErrExists) { // of an attempt that was cut off
		if err = p.detach(ctx, *r); err == nil {
			out, err = p.bridge.Add(ctx, p.call(*r))
		}
	}
	if err != nil {
		return err
	}
	result, err := inproc.Parse(out, cniVersion)
	if err != nil {
		return err
	}
	for _, i := range result.Interfaces {
		if i.Sandbox == "" && i.Name != Bridge {
			r.Port = i.Name
		}
	}
	for _, ip := range result.IPs {
		r.Addrs = append(r.Addrs, ip.Address)
	}
	r.Result = out
	return nil
}

func (p *Plugin) detach(ctx context.Context, r store.Record) error {
	c := p.call(r)
	ns, err := netns.Verify(r.Netns)
	switch {
	case errors.Is(err, core.ErrNetnsGone): // and the interface with it
		c.Netns = core.Netns{}
	case err != nil:
		return err
	default:
		defer func() { _ = ns.Close() }()
	}
	return p.bridge.Del(ctx, c)
}

// CheckPod compares the interface, its address, and the host ports.
func (p *Plugin) CheckPod(ctx context.Context, pod netplugin.Pod) error {
	r, ok := p.store.Get(pod.Sandbox)
	if !ok || len(r.Result) == 0 {
		return netplugin.ErrUnchecked
	}
	c := p.call(r)
	var conf map[string]json.RawMessage
	err := json.Unmarshal(r.Conf, &conf)
	if err == nil {
		conf["prevResult"] = r.Result
		c.Conf, err = json.Marshal(conf)
	}
	if err != nil {
		return err
	}
	err = p.bridge.Check(ctx, c)
	if spec := portSpec(r); len(spec.HostPorts.Ports) > 0 {
		err = errors.Join(err, p.ports.Check(ctx, driver.Run{}, spec, core.Link{}))
	}
	return err
}

// portSpec is what the driver of host ports is told of r.
func portSpec(r store.Record) core.Spec {
	s := core.Spec{
		Key: core.Key{Container: r.Pod.Sandbox, IfName: netplugin.IfName}, Driver: core.DriverHostport, Network: Name,
		Pod: core.Pod{Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: r.Pod.UID}, Netns: r.Netns, HostPorts: &core.HostPorts{Addrs: r.Addrs},
	}
	for _, m := range r.Ports {
		if m.HostPort <= 0 {
			continue
		}
		host, _ := netip.ParseAddr(m.HostIP) // none: all addresses
		s.HostPorts.Ports = append(s.HostPorts.Ports, core.PortMapping{
			HostPort: uint16(m.HostPort), ContainerPort: uint16(m.ContainerPort), Protocol: m.Protocol, HostIP: host.Unmap(),
		})
	}
	return s
}
