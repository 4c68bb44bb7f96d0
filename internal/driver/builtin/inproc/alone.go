package inproc

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// An address is asked for three times before it is set (RFC 5227, 2.1.1, shortened).
const (
	probePause = 200 * time.Millisecond
	probeLimit = 3 * probePause
)

// Alone takes a link up and asks its network for addresses that it is to have to itself.
// AddressConflictOnWire (11): another answers, whose MAC the message names.
func Alone(ctx context.Context, pod *netns.Handle, conn *rtnl.Conn, l rtnl.Link, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	if err := conn.SetUp(l.Index); err != nil {
		return err
	}
	errs := make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		wg.Go(func() { errs[i] = unanswered(ctx, pod, l, a) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// unanswered is nil where nobody says that it has an address.
func unanswered(ctx context.Context, pod *netns.Handle, l rtnl.Link, a netip.Addr) error {
	asking, stop := context.WithTimeout(ctx, probeLimit)
	defer stop()
	other, err := neigh.Who(asking, pod, neigh.Question{IfName: l.Name, MAC: l.MAC, For: a}, probePause)
	switch {
	case err == nil:
		return core.Reasoned(core.CodeTryAgain, core.ReasonAddressConflict, "MAC %s answers for address %s, which interface %s is to have to itself", other, a, l.Name)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, core.ErrNotFound):
		return nil
	case errors.Is(err, core.ErrUnavailable):
		return core.WithCode(core.CodeTryAgain, "probe "+a.String(), err)
	}
	return err
}
