package ovs

import (
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// remade tells that OVS has made the device of an internal port again: it was
// restarted, and what others did to the device (its place in a pod, addresses)
// is lost. The bridge's own device alone does not tell: OVS may find it again.
func remade(old, now model.Model) bool {
	o, was := old.(*ifaceRow)
	n, is := now.(*ifaceRow)
	return was && is && n.Type == "internal" && value(o.OFPort) > 0 &&
		value(n.IfIndex) != 0 && value(n.IfIndex) != value(o.IfIndex)
}

// events keeps waiters and resets informed. The handlers run on libovsdb's
// event goroutine and must be quick.
func (c *Client) events() cache.EventHandler {
	changed := func(m model.Model) {
		switch r := m.(type) {
		case *ifaceRow:
			c.interfaceChanged(r)
		case *bridgeRow:
			c.wake(r.Name)
		case *rootRow:
			c.wake(rootKey)
		}
	}
	return &cache.EventHandlerFuncs{
		AddFunc: func(_ string, m model.Model) { changed(m) },
		UpdateFunc: func(_ string, old, m model.Model) {
			changed(m)
			c.touch(old, m)
			c.idsChanged(old, m)
			if remade(old, m) {
				c.wantReset()
			}
		},
		DeleteFunc: func(_ string, m model.Model) {
			changed(m)
			c.touch(m, nil)
			if b, ok := m.(*bridgeRow); ok && b.Name == c.cfg.Bridge {
				c.wantReset()
			}
		},
	}
}
