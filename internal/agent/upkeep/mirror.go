package upkeep

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/ovs"
)

// deafness keeps the node's own IP stack from what the mirror copies: it would answer for
// its addresses, and take broadcasts of pods for the node's.
var deafness = map[string]string{
	"net/ipv6/conf/" + ovs.MirrorPort + "/disable_ipv6": "1",
	"net/ipv4/conf/" + ovs.MirrorPort + "/arp_ignore":   "8", // reply for no address
	"net/ipv4/conf/" + ovs.MirrorPort + "/rp_filter":    "1",
}

// RaiseMirror has the device to which the bridge's mirror copies up, so that whoever
// listens there hears it: Open vSwitch makes it down, and anew when it is started anew.
func RaiseMirror(ports interface {
	PortByName(name string) (ovs.PortState, bool)
},
) error {
	if _, ok := ports.PortByName(ovs.MirrorPort); !ok {
		return nil
	}
	c, err := rtnl.Open(nil)
	if err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	defer func() { _ = c.Close() }()
	l, err := c.LinkByName(ovs.MirrorPort)
	if errors.Is(err, core.ErrNotFound) || err == nil && l.Up {
		return nil // it is told of when it is made
	}
	for name, value := range deafness {
		if err == nil {
			if err = sysfs.WriteSysctl(name, value); sysfs.SysctlMissing(err) {
				err = nil
			}
		}
	}
	if err == nil {
		err = c.SetUp(l.Index)
	}
	if err != nil {
		return fmt.Errorf("nothing is heard at %s: %w", ovs.MirrorPort, err)
	}
	return nil
}
