package agent

import (
	"context"
	"fmt"
	"sync"

	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Clear removes the node's side of every Subnet: gateways, masquerade, and what
// keeps pods from the node's own stack. Nobody may run an agent meanwhile, and no
// pod has a port any more. The bridge stays.
func (c *Config) Clear(ctx context.Context) error {
	if err := nft.NewGuard(nil, guardTable, ovsdriver.GroupLive).Remove(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, gatewayLimit)
	connected := make(chan struct{}, 1)
	switcher := ovs.New(ovs.Config{Endpoint: c.OVSDB, Bridge: c.Bridge, Log: c.Log, OnReset: func() {
		select {
		case connected <- struct{}{}:
		default:
		}
	}})
	var running sync.WaitGroup
	running.Go(func() { switcher.Run(ctx) })
	defer running.Wait()
	defer stop()
	select {
	case <-connected:
	case <-ctx.Done():
		return fmt.Errorf("remove gateways: %w", switcher.Connected())
	}
	err := standalone.New(standalone.Config{Ports: switcher, Filter: c.Filter.Filter(), Node: c.NodeName}).Set(ctx, standalone.Wanted{})
	if err == nil {
		err = switcher.Settle(ctx) // only then the devices are gone
	}
	if err != nil {
		return fmt.Errorf("remove gateways: %w", err)
	}
	return nil
}
