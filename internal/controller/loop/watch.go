package loop

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/alive"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/standin"
	"github.com/fairlead/fairlead/internal/ovn"
)

// watch asks the nodes that are gateways, also while this controller does not lead: it
// knows then which of them is dead when it takes over, from one on that node maybe.
func (c *Config) watch(w object.World, changed, suspected func()) *alive.Watch {
	return alive.New(alive.Config{
		Whom: func() []alive.Node { return gateway.Whom(w.Readers, own(), append(c.members(), c.Routers()...)) },
		Follow: func(ctx context.Context, listed func()) error {
			return w.Follow(ctx, askedAnew(w.Readers, listed))
		},
		Open: c.Echo, Changed: changed, Suspected: suspected, Log: c.Log,
	})
}

// askedAnew takes news of objects, and calls listed where other nodes may be to be asked.
func askedAnew(from object.Readers, listed func()) func(object.Key) {
	var seen object.Seen
	return func(k object.Key) {
		if (k.Kind == object.KindSubnet || k.Kind == object.KindNode) && seen.Changed(k, gateway.Matters(from, k)) {
			listed()
		}
	}
}

// standIn looks at gateways while the controller that leads does not.
func (c *Config) standIn(w object.World, db *ovn.Client, ctl *controller.Controller, watch *alive.Watch, count *metrics) *standin.Keeper {
	return standin.New(standin.Config{
		From: w.Readers, DB: db, ID: c.ID, Silent: watch.Silent, Suspect: watch.Suspect, Done: count.stoodIn.Inc, Log: c.Log,
		Leads: func() bool { _, leads := ctl.Pending(); return leads },
	})
}

// members are the addresses of the northbound database's members.
func (c *Config) members() (out []netip.Addr) {
	for endpoint := range strings.SplitSeq(c.NB, ",") {
		_, at, _ := strings.Cut(endpoint, ":")
		if a, err := netip.ParseAddrPort(at); err == nil {
			out = append(out, a.Addr())
		}
	}
	return out
}

// own are this machine's addresses.
func own() (out []netip.Addr) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}
