package ovs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// Learnt is the name of the port by which a bridge has seen a MAC on a VLAN, 0 for frames
// without a tag (ovs-vswitchd(8), fdb/show). core.ErrNotFound: it has not, or no longer; or
// its flows do not have it learn. core.ErrUnavailable: nobody tells.
func (c *Client) Learnt(ctx context.Context, bridge string, mac core.MAC, vlan int) (port string, err error) {
	err = fmt.Errorf("control socket of ovs-vswitchd beside %s: %w", c.cfg.Endpoint, core.ErrUnavailable)
	for _, socket := range switchdSockets(c.cfg.Endpoint) {
		var table string
		if table, err = Control(ctx, socket, "fdb/show", bridge); err == nil {
			return c.learntIn(table, bridge, mac, vlan)
		}
		err = fmt.Errorf("fdb/show %s: %w: %w", bridge, core.ErrUnavailable, err)
	}
	return "", err
}

// learntIn reads lines of port number, VLAN, MAC and age in seconds.
func (c *Client) learntIn(table, bridge string, mac core.MAC, vlan int) (string, error) {
	v, err := c.view()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != strconv.Itoa(vlan) || f[2] != mac.String() {
			continue
		}
		if f[0] == "LOCAL" {
			return bridge, nil
		}
		if name := v.numbered(bridge, f[0]); name != "" {
			return name, nil
		}
	}
	return "", fmt.Errorf("MAC %s on bridge %s: %w", mac, bridge, core.ErrNotFound)
}

// numbered is the interface of a bridge with an OpenFlow number, "" for none.
func (v view) numbered(bridge, ofport string) string {
	for _, i := range session.Rows[ifaceRow](v.View, tInterface) {
		if i.OFPort == nil || strconv.Itoa(*i.OFPort) != ofport {
			continue
		}
		for _, p := range session.Rows[portRow](v.View, tPort) {
			b := v.bridgeOf(p.UUID)
			if b != nil && b.Name == bridge && slices.Contains(p.Interfaces, i.UUID) {
				return i.Name
			}
		}
	}
	return ""
}
