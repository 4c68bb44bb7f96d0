package hostport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Attach opens the ports of a Spec. A port that another pod has is code 105 and
// names the pod; an earlier sandbox of the same pod, and a pod whose namespace
// is gone, give theirs up.
func (t *Table) Attach(ctx context.Context, r driver.Run, s core.Spec) (core.Link, error) {
	l, settled, err := t.Start(ctx, r, s)
	if err == nil {
		err = settled(ctx)
	}
	return l, err
}

// Start is Attach that does not wait for nft: settled does. That a port is
// taken is known at once.
func (t *Table) Start(ctx context.Context, _ driver.Run, s core.Spec) (core.Link, func(context.Context) error, error) {
	e, err := entryOf(s)
	if err == nil {
		err = t.admit(e)
	}
	if err != nil {
		return core.Link{}, nil, err
	}
	done := make(chan error, 1)
	go func() { done <- t.openPorts(ctx, s) }()
	settled := func(ctx context.Context) error {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return fmt.Errorf("host ports of %s: %w", s.Key, ctx.Err())
		}
	}
	return core.Link{IfName: s.Key.IfName}, settled, nil
}

func (t *Table) openPorts(ctx context.Context, s core.Spec) error {
	if err := t.commit(ctx); err != nil {
		return fmt.Errorf("open host ports of %s: %w", s.Key, err)
	}
	fail.Here("hostport.opened")
	if err := errors.Join(t.openLoopback(s), t.settle(nil, s.Key)); err != nil {
		return fmt.Errorf("open host ports of %s: %w", s.Key, err)
	}
	return nil
}

// Check proves that the ports of a Spec are open.
func (t *Table) Check(ctx context.Context, _ driver.Run, s core.Spec, _ core.Link) error {
	if _, err := entryOf(s); err != nil {
		return err
	}
	t.mu.Lock()
	want := elements(t.entries[s.Key].ports, s.HostPorts.Addrs)
	t.mu.Unlock()
	asked := elements(s.HostPorts.Ports, s.HostPorts.Addrs)
	found, err := t.compare(ctx, asked, want)
	if err == nil {
		found = append(found, t.checkLoopback(s))
	}
	if err := errors.Join(found...); err != nil {
		t.spoil()
	}
	return errors.Join(append(found, err)...)
}

// compare reads the table. What another sandbox of the pod has taken over is no
// longer wanted, and a difference too; what is written only now is none.
func (t *Table) compare(ctx context.Context, asked, want []element) (found []error, err error) {
	for _, el := range asked {
		if !slices.Contains(want, el) {
			found = append(found, core.Difference("host port "+el.key+" belongs to another pod now"))
		}
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if want = t.written(want); len(want) == 0 {
		return found, nil
	}
	have, faults, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	if found = append(found, t.differences(want, have, faults)...); len(found) > 0 {
		t.have = nil // the next change writes it anew
	}
	return found, nil
}

// Drift is what is not as it should be, of the table and of the node's loopback
// addresses. An error that is no core.ErrDrift says that the truth could not be
// learnt. Without host ports there is nothing to look at.
func (t *Table) Drift(ctx context.Context) error {
	want := t.desired()
	if len(want) == 0 {
		return nil
	}
	found, err := t.compare(ctx, want, want)
	return errors.Join(append(found, err, t.lostLoopback())...)
}

// written leaves out what no transaction had yet, and what nobody wants any more.
// The caller has the turn to write.
func (t *Table) written(want []element) []element {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(want), func(el element) bool {
		_, wanted := t.want[el]
		return !wanted || t.touched[el]
	})
}

func (t *Table) desired() []element {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.want))
}

// Audit compares the whole table with what is desired and writes it anew if it
// differs. Without host ports there is nothing to look at.
func (t *Table) Audit(ctx context.Context) error {
	want := t.desired()
	if len(want) == 0 {
		return nil
	}
	found, err := t.compare(ctx, want, want)
	switch {
	case err != nil:
	case len(found) > 0:
		t.cfg.Log.Warn("host ports were not as they should be", "err", errors.Join(found...))
		err = t.Rewrite(ctx)
	default:
		t.writing.Lock()
		err = t.reopen()
		t.writing.Unlock()
	}
	if err != nil {
		return fmt.Errorf("audit host ports: %w", err)
	}
	return nil
}

// Detach closes the ports of a Spec and has the kernel forget the connections
// through them, and all others of the pod's addresses.
func (t *Table) Detach(ctx context.Context, _ driver.Run, s core.Spec) error {
	e, err := entryOf(s)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.drop(s.Key)
	t.mu.Unlock()
	if err := t.commit(ctx); err != nil {
		return fmt.Errorf("close host ports of %s: %w", s.Key, err)
	}
	fail.Here("hostport.closed")
	if err := t.settle(addresses(e)); err != nil {
		return fmt.Errorf("close host ports of %s: %w", s.Key, err)
	}
	return nil
}

func addresses(e entry) []netip.Addr {
	out := make([]netip.Addr, 0, len(e.addrs))
	for _, a := range e.addrs {
		out = append(out, a.Addr())
	}
	return out
}
