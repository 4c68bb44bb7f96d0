package hostport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// withNIC makes the interface that the ports lead to, as the steps before do.
type withNIC struct{ *hostport.Table }

func (w withNIC) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	l, settled, err := w.Start(ctx, r, s)
	if err == nil {
		err = settled(ctx)
	}
	return l, err
}

func (w withNIC) Start(ctx context.Context, r driver.Run, s core.Spec) (core.Link, func(context.Context) error, error) {
	if err := errors.Join(drivertest.MakeNIC(ctx, s, s.HostPorts.Addrs...), ctx.Err()); err != nil {
		return core.Link{}, nil, err
	}
	l, settled, err := w.Table.Start(ctx, r, s)
	l.Addrs = s.HostPorts.Addrs
	return l, settled, err
}

func (w withNIC) Check(ctx context.Context, r driver.Run, s core.Spec, l core.Link) error {
	return errors.Join(drivertest.FindNIC(s), w.Table.Check(ctx, r, s, l))
}

func (w withNIC) Detach(ctx context.Context, r driver.Run, s core.Spec) error {
	return errors.Join(w.Table.Detach(ctx, r, s), drivertest.RemoveNIC(s))
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Machine {
		host := netnstest.New(t)
		table := func() driver.Driver {
			return withNIC{hostport.New(hostport.Config{Host: host, Log: slog.New(slog.DiscardHandler)})}
		}
		return &drivertest.Machine{
			Driver: table(), Again: table,
			Spec: func(n int, ns core.Netns) core.Spec {
				return core.Spec{
					Key: core.Key{Container: fmt.Sprintf("c%d", n), IfName: fmt.Sprintf("eth%d", n)}, Driver: core.DriverHostport,
					Pod: core.Pod{Namespace: "default", Name: fmt.Sprintf("p%d", n)}, Netns: ns,
					HostPorts: &core.HostPorts{
						Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.9.%d.2/24", n))},
						Ports: []core.PortMapping{tcp(uint16(8000+n), 80)},
					},
				}
			},
			Inventory: func() []string {
				return slices.Concat(inside.Links(t, host), strings.Split(inside.Run(t, host, "nft", "list", "ruleset"), "\n"))
			},
		}
	})
}
