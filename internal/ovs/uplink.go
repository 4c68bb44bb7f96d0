package ovs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// External ids of an uplink's bridge and of the switch (sdn.md, sections 6 and 7;
// ovn-controller(8)).
const (
	// KeyUplink is the provider network whose bridge this is: the owner.
	KeyUplink    = "fairlead-uplink"
	keyExchanged = "exchange-link-name"

	idMappings    = "ovn-bridge-mappings"
	idChassisMACs = "ovn-chassis-mac-mappings"
	keyFallback   = "mac-learning-fallback"

	// KeyTransient marks a port that is not to be there after a reboot: what starts Open
	// vSwitch removes it (ovs-ctl(8); deploy/systemd; the chart), since the kernel has the
	// NIC's addresses on the NIC again, and nobody has the bridge's device up.
	KeyTransient = "transient"
)

// Uplink is the bridge of a provider network with the NIC that leads there.
type Uplink struct {
	Network, Bridge string
	NIC             string   // its port
	MAC             core.MAC // of the bridge's own device: the NIC's
	ChassisMAC      core.MAC // unless the switch has one for the network
	MTU             int      // of the bridge's own device, bytes
	Trunks          []int    // VLANs that the NIC carries, 0 for untagged frames; nil: those that it has, or 0
	Exchanged       bool     // bridge and NIC have changed names
}

// EnsureUplinkBridge makes the bridge and its own device, without the NIC: the device can
// be given all that the NIC has before one frame goes to it. core.ErrExists: somebody
// else's bridge has the name.
func (c *Client) EnsureUplinkBridge(ctx context.Context, u Uplink) error {
	err := c.change(ctx, func(v view, t *session.Txn) error {
		b := v.bridge(u.Bridge)
		if b == nil {
			c.insertUplink(v, t, u)
			return nil
		}
		return c.repairUplink(v, t, u, b)
	})
	if err != nil {
		return fmt.Errorf("bridge %s: %w", u.Bridge, err)
	}
	return nil
}

// ids are what the bridge's row says; one of Kube-OVN's lacks the owner.
func (u Uplink) ids() map[string]string {
	return map[string]string{KeyVendor: Vendor, KeyUplink: u.Network, keyExchanged: strconv.FormatBool(u.Exchanged)}
}

func (u Uplink) otherConfig() map[string]string {
	return map[string]string{keyHWAddr: u.MAC.String(), keyFallback: "true"}
}

func (c *Client) insertUplink(v view, t *session.Txn, u Uplink) {
	iface := t.Insert(tInterface, ovsdb.Row{"name": u.Bridge, "type": "internal", "mtu_request": session.Optional(u.MTU)})
	port := t.Insert(tPort, ovsdb.Row{"name": u.Bridge, "interfaces": session.Set(iface)})
	bridge := t.Insert(tBridge, ovsdb.Row{
		"name": u.Bridge, "ports": session.Set(port), "datapath_type": c.cfg.Datapath, "fail_mode": "standalone",
		"external_ids": session.Map(u.ids()), "other_config": session.Map(u.otherConfig()),
	})
	if root := session.Rows[rootRow](v.View, tRoot); len(root) > 0 {
		t.Add(tRoot, root[0].UUID, "bridges", bridge)
	} else {
		t.Insert(tRoot, ovsdb.Row{"bridges": session.Set(bridge)})
	}
}

func (c *Client) repairUplink(v view, t *session.Txn, u Uplink, b *bridgeRow) error {
	if !owned(b, u.Network) {
		return fmt.Errorf("%w: it is somebody else's (external_ids:vendor is %q)", core.ErrExists, b.ExternalIDs[KeyVendor])
	}
	row := ovsdb.Row{}
	if !includes(b.ExternalIDs, u.ids()) {
		t.Expect(tBridge, b.UUID, "external_ids", session.Map(b.ExternalIDs))
		row["external_ids"] = session.Map(merged(b.ExternalIDs, u.ids()))
	}
	if !includes(b.OtherConfig, u.otherConfig()) {
		t.Expect(tBridge, b.UUID, "other_config", session.Map(b.OtherConfig))
		row["other_config"] = session.Map(merged(b.OtherConfig, u.otherConfig()))
	}
	if datapath(b.DatapathType) != datapath(c.cfg.Datapath) {
		row["datapath_type"] = c.cfg.Datapath
	}
	if len(row) > 0 {
		t.Update(tBridge, b.UUID, row)
	}
	if i := v.iface(u.Bridge); i != nil && u.MTU != 0 && value(i.MTURequest) != u.MTU {
		t.Update(tInterface, i.UUID, ovsdb.Row{"mtu_request": u.MTU})
	}
	return nil
}

// owned tells that a bridge is a network's: ours, or one that Kube-OVN made.
func owned(b *bridgeRow, network string) bool {
	by := b.ExternalIDs[KeyUplink]
	return b.ExternalIDs[KeyVendor] == Vendor && (by == "" || by == network)
}

// AttachUplink makes the NIC a port of the bridge and tells ovn-controller of the network,
// in one transaction; other ports of ours that are NICs go. core.ErrExists: the NIC is a
// port of another bridge.
func (c *Client) AttachUplink(ctx context.Context, u Uplink) error {
	err := c.change(ctx, func(v view, t *session.Txn) error {
		b := v.bridge(u.Bridge)
		if b == nil {
			return fmt.Errorf("bridge %s: %w: it is not in the database", u.Bridge, core.ErrUnavailable)
		}
		if on := c.BridgeOf(u.NIC); on != "" && on != u.Bridge {
			return fmt.Errorf("%w: it is a port of bridge %s", core.ErrExists, on)
		}
		c.dropStrayNICs(v, t, u, b)
		if err := c.uplinkPort(v, t, u, b); err != nil {
			return err
		}
		return mapNetworks(v, t, func(have map[string]string) map[string]string {
			macs := entry(have[idChassisMACs], u.Network)
			if macs == "" {
				macs = u.ChassisMAC.String()
			}
			return map[string]string{
				idMappings: withEntry(have[idMappings], u.Network, u.Bridge), idChassisMACs: withEntry(have[idChassisMACs], u.Network, macs),
			}
		})
	})
	if err != nil {
		return fmt.Errorf("port %s of bridge %s: %w", u.NIC, u.Bridge, err)
	}
	return nil
}

// uplinkPort is the part of the transaction about the NIC's port.
func (c *Client) uplinkPort(v view, t *session.Txn, u Uplink, b *bridgeRow) error {
	trunks := []any{}
	for _, id := range u.Trunks {
		trunks = append(trunks, id)
	}
	if u.Trunks == nil {
		trunks = append(trunks, 0)
	}
	transient := map[string]string{KeyTransient: "true"}
	p, i := v.port(u.NIC), v.iface(u.NIC)
	if p != nil && i != nil && (value(i.Error) != "" || value(i.OFPort) < 0) { // a new row has no old error
		c.removePort(v, t, u.NIC)
		p = nil
	}
	if p == nil {
		ids := session.Map(map[string]string{KeyVendor: Vendor})
		iface := t.Insert(tInterface, ovsdb.Row{"name": u.NIC, "external_ids": ids})
		port := t.Insert(tPort, ovsdb.Row{
			"name": u.NIC, "interfaces": session.Set(iface), "trunks": session.Set(trunks...), "external_ids": ids, "other_config": session.Map(transient),
		})
		t.Expect(tBridge, b.UUID, "name", b.Name)
		t.Add(tBridge, b.UUID, "ports", port)
		return nil
	}
	if !includes(p.OtherConfig, transient) {
		t.Expect(tPort, p.UUID, "other_config", session.Map(p.OtherConfig))
		t.Update(tPort, p.UUID, ovsdb.Row{"other_config": session.Map(merged(p.OtherConfig, transient))})
	}
	if have := slices.Sorted(slices.Values(p.Trunks)); u.Trunks != nil && !slices.Equal(have, slices.Sorted(slices.Values(u.Trunks))) || p.Tag != nil {
		t.Update(tPort, p.UUID, ovsdb.Row{"trunks": session.Set(trunks...), "tag": session.Set()})
	}
	return nil
}

// dropStrayNICs removes a port that the NIC had under another name.
func (c *Client) dropStrayNICs(v view, t *session.Txn, u Uplink, b *bridgeRow) (some bool) {
	for _, p := range session.Rows[portRow](v.View, tPort) {
		i := v.iface(p.Name)
		if !slices.Contains(b.Ports, p.UUID) || p.Name == u.NIC || i == nil || i.Type != "" {
			continue
		}
		if i.ExternalIDs[KeyVendor] == Vendor {
			c.removePort(v, t, p.Name)
			some = true
		}
	}
	return some
}

// frees bounds how long a NIC that is a port no more may take to be free, before the bridge
// goes with all else.
const frees = 3 * time.Second

// DetachUplink removes the bridge with its ports, and what ovn-controller was told of the
// network. A bridge that is gone is success; somebody else's stays. The NIC goes first, by
// itself: while ovs-vswitchd takes a bridge apart nobody has its ports' frames.
func (c *Client) DetachUplink(ctx context.Context, network, bridge string) error {
	freed := false
	err := c.change(ctx, func(v view, t *session.Txn) error {
		if b := v.bridge(bridge); b != nil && owned(b, network) {
			freed = c.dropStrayNICs(v, t, Uplink{}, b)
		}
		return nil
	})
	if err == nil && freed {
		waiting, stop := context.WithTimeout(ctx, frees)
		_ = c.Settle(waiting) // ovs-vswitchd that is away frees it when it comes
		stop()
	}
	if err == nil {
		err = c.dropUplink(ctx, network, bridge)
	}
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", bridge, err)
	}
	return nil
}

func (c *Client) dropUplink(ctx context.Context, network, bridge string) error {
	return c.change(ctx, func(v view, t *session.Txn) error {
		if b := v.bridge(bridge); b != nil && owned(b, network) {
			root, err := v.root()
			if err != nil {
				return err
			}
			t.Drop(tRoot, root.UUID, "bridges", ovsdb.UUID{GoUUID: b.UUID})
		}
		return mapNetworks(v, t, func(have map[string]string) map[string]string {
			return map[string]string{idMappings: withEntry(have[idMappings], network, ""), idChassisMACs: withEntry(have[idChassisMACs], network, "")}
		})
	})
}

// WaitDevice waits until OVS has opened a port, whoever makes its flows. Errors are those of
// WaitPort.
func (c *Client) WaitDevice(ctx context.Context, name string) error {
	err := c.await(ctx, name, func(v view) (bool, error) {
		_, done, err := stateOf(v.iface(name), name)
		return done, err
	})
	if err != nil {
		return fmt.Errorf("wait for port %s: %w", name, err)
	}
	return nil
}

// MappedBridge is the bridge of a provider network on this node as ovn-controller is told it,
// "" for none.
func (c *Client) MappedBridge(network string) (string, error) {
	ids, err := c.IDs()
	return entry(ids[idMappings], network), err
}

// BridgeOf is the bridge that has a port, "" for none, or while the database is away.
func (c *Client) BridgeOf(port string) string {
	st, _ := c.PortByName(port)
	return st.Bridge
}

// Uplinks are the bridges of provider networks that are ours, with the NICs that are their
// ports; core.ErrUnavailable while the database is away.
func (c *Client) Uplinks() (out []Uplink, err error) {
	v, err := c.view()
	if err != nil {
		return nil, err
	}
	for _, b := range session.Rows[bridgeRow](v.View, tBridge) {
		if b.ExternalIDs[KeyUplink] == "" || b.ExternalIDs[KeyVendor] != Vendor {
			continue
		}
		u := Uplink{Network: b.ExternalIDs[KeyUplink], Bridge: b.Name, Exchanged: b.ExternalIDs[keyExchanged] == "true"}
		for _, uuid := range b.Ports {
			p := session.ByUUID[portRow](v.View, tPort, uuid)
			if p == nil {
				continue
			}
			if i := v.iface(p.Name); i != nil && i.Type == "" && i.ExternalIDs[KeyVendor] == Vendor {
				u.NIC = p.Name
			}
		}
		out = append(out, u)
	}
	return out, nil
}

// mapNetworks writes external ids of the switch that are lists of entries; "" removes one.
func mapNetworks(v view, t *session.Txn, want func(have map[string]string) map[string]string) error {
	root, err := v.root()
	if err != nil {
		return err
	}
	ids := want(root.ExternalIDs)
	maps.DeleteFunc(ids, func(k, val string) bool { return root.ExternalIDs[k] == val })
	if len(ids) == 0 {
		return nil
	}
	keys, set := session.Set(), map[string]string{}
	for k, val := range ids {
		// Others' entries stand in the same text: they are not to be lost.
		keys.GoSet = append(keys.GoSet, k)
		if val != "" {
			set[k] = val
		}
	}
	t.Expect(tRoot, root.UUID, "external_ids", session.Map(root.ExternalIDs))
	t.Mutate(tRoot, root.UUID,
		ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, keys),
		ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, session.Map(set)))
	return nil
}

// entry is the value of a network in "NETWORK:VALUE,...".
func entry(list, network string) string {
	for one := range strings.SplitSeq(list, ",") {
		if name, value, ok := strings.Cut(strings.TrimSpace(one), ":"); ok && name == network {
			return value
		}
	}
	return ""
}

// withEntry is the list with another value for a network, in its place; "" removes it.
func withEntry(list, network, value string) string {
	var out []string
	found := false
	for one := range strings.SplitSeq(list, ",") {
		if name, _, _ := strings.Cut(one, ":"); name == network {
			found = true
			if value == "" {
				continue
			}
			one = network + ":" + value
		}
		if one != "" {
			out = append(out, one)
		}
	}
	if !found && value != "" {
		out = append(out, network+":"+value)
	}
	return strings.Join(out, ",")
}
