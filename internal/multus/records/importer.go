package records

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Importer takes running containers that Multus attached into the journal, and
// drops them from it when Multus is to have them back. It changes nothing of a
// container.
type Importer struct {
	Folder
	Network string // `name` of the runtime's configuration
	IfName  string // the runtime's CNI_IFNAME, which Multus does not keep
	BootID  string
	Journal *journal.Journal
	// Lock waits for a container's turn; the function gives it back.
	Lock func(ctx context.Context, id string) (func(), error)
}

// Import begins the record of a container, which is durable when it returns. It
// may be repeated. What it returns with an error says as much as is known of
// the container. core.ErrExists: the journal has other attachments of it;
// ErrUnfit: only Multus' files can serve it; core.ErrNetnsGone: it does not run
// any more; core.ErrNotFound: there is no record of Multus.
func (i Importer) Import(ctx context.Context, id string) (core.Record, error) {
	key := core.Key{Container: id, IfName: i.IfName}
	unlock, err := i.Lock(ctx, id)
	if err != nil {
		return core.Record{Key: key}, err
	}
	defer unlock()
	if there := i.Journal.Container(id); len(there) > 0 {
		if !Inherited(there[0]) {
			err = fmt.Errorf("container %s: the journal has it: %w", id, core.ErrExists)
		}
		return there[0], err
	}
	rec, err := i.design(key)
	if err != nil {
		return rec, err
	}
	if err := i.Journal.Begin(ctx, rec); err != nil {
		return rec, fmt.Errorf("import %s: %w", key, err)
	}
	fail.Here("import.recorded")
	return rec, nil
}

// design makes the record. A namespace that has a container of ours is no other
// one's.
func (i Importer) design(key core.Key) (core.Record, error) {
	none := core.Record{Key: key}
	l, err := i.Of(core.Request{Key: key})
	if err == nil && l == nil {
		err = core.ErrNotFound
	}
	if err != nil {
		return none, fmt.Errorf("record of Multus of %s: %w", key.Container, err)
	}
	none.Pod, none.Netns.Path = l.Pod(), l.Netns
	if err := l.Fit(); err != nil {
		return none, err
	}
	ns, err := i.identify(l.Netns)
	if err != nil {
		return none, err
	}
	for _, h := range i.Journal.NetnsHeads(ns) {
		return none, fmt.Errorf("%w: container %s has its namespace", ErrUnfit, h.Key.Container)
	}
	rec := l.Record(key, i.Network, ns)
	return rec, There(rec)
}

// identify opens a namespace and refuses the host's own.
func (i Importer) identify(path string) (core.Netns, error) {
	h, err := netns.Open(path)
	if err != nil {
		return core.Netns{}, err
	}
	defer func() { _ = h.Close() }()
	if netns.IsHost(h) {
		return core.Netns{}, fmt.Errorf("%w: %s is the host's own network namespace", ErrUnfit, path)
	}
	cookie, err := h.Cookie()
	return core.Netns{Path: path, Cookie: cookie, BootID: i.BootID}, err
}

// Release drops the record of a container that Multus can detach (Export).
func (i Importer) Release(ctx context.Context, key core.Key) error {
	unlock, err := i.Lock(ctx, key.Container)
	if err != nil {
		return err
	}
	defer unlock()
	rec, ok := i.Journal.Get(key)
	if !ok {
		return nil
	}
	if _, err := Export(rec, nil, i.Dir); err != nil {
		return err
	}
	return i.Journal.Forget(ctx, key, nil)
}
