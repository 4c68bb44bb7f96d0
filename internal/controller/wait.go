package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/ovn"
)

// missingFor is for how long rows may lack what others make at the same time, a Subnet's
// switch first, before an object is told that it lacks them.
const missingFor = 3 * time.Second

// awaited is what an object needs that is not served, and since when.
type awaited struct {
	needs, lacks string // lacks is the row that is not there, "" where it is another failure
	since        time.Time
}

// failed tells why an object is not served, and has it looked at again when
// what it needs changes: a Subnet or Vpc by name, or one of several with spaces between,
// "" for nothing that has one.
func (t *term) failed(ctx context.Context, o object.Object, needs, reason string, err error) error {
	missing, lacks := (*ovn.MissingError)(nil), ""
	if errors.As(err, &missing) {
		lacks = missing.Table + " " + missing.Key
	}
	since := t.awaits(o.Key, needs, lacks)
	if missing != nil {
		if time.Since(since) < missingFor {
			return err // it is tried again
		}
		if fault := t.fault(missing.Key); fault != nil && missing.Table == ovn.TableSwitch {
			err = fmt.Errorf("no rows of Subnet %s: %w", missing.Key, fault)
		}
	}
	return errors.Join(err, t.say(ctx, o, object.Event{Reason: reason, Message: err.Error(), Unserved: true}))
}

// warning is an event of an object, which is another one with another UID.
type warning struct {
	uid string
	object.Event
}

// say tells of an object what was not told of it last; what it could not tell, the next time.
func (t *term) say(ctx context.Context, o object.Object, e object.Event) error {
	t.mu.Lock()
	now := warning{o.UID, e}
	said := t.warned[o.Key] == now
	t.warned[o.Key] = now
	t.mu.Unlock()
	if said {
		return nil
	}
	if err := t.Warn(ctx, o, e); err != nil {
		return errors.Join(err, t.blames(ctx, o, e.Reason, "")) // nothing was told
	}
	return nil
}

// awaits has an object looked at again when a Subnet or Vpc has rows, and gives since when
// it is not served for want of the same row.
func (t *term) awaits(k object.Key, needs, lacks string) (since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was, is := t.waiting[k]; is && was.lacks == lacks {
		since = was.since
	} else {
		since = time.Now()
	}
	t.waiting[k] = awaited{needs, lacks, since}
	return since
}

// fault is why a Subnet that is good by itself has no rows.
func (t *term) fault(subnet string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults[subnet]
}

// calm has an object wait for nothing any more; the same failure is told as an
// event again.
func (t *term) calm(k object.Key) {
	t.mu.Lock()
	_, warned := t.warned[k]
	delete(t.waiting, k)
	delete(t.warned, k)
	t.mu.Unlock()
	if warned && t.Well != nil {
		t.Well(k)
	}
}

// noted has an object wait for nothing any more, and tells which of its annotations
// nobody carries out.
func (t *term) noted(ctx context.Context, o object.Object, undone []string) error {
	if len(undone) == 0 {
		t.calm(o.Key)
		return nil
	}
	t.served(o.Key)
	return t.say(ctx, o, object.Event{Reason: status.Fields, Message: "not carried out: " + strings.Join(undone, ", ")})
}

// served has an object wait for nothing any more; what was told of it still
// holds.
func (t *term) served(k object.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, k)
}

// rouse has objects looked at that wait for a Subnet or Vpc; "" is all.
func (t *term) rouse(name string) {
	var keys []object.Key
	t.mu.Lock()
	for k, w := range t.waiting {
		if name == "" || slices.Contains(strings.Fields(w.needs), name) {
			keys = append(keys, k)
		}
	}
	t.mu.Unlock()
	t.queue.Add(keys...)
}

// recount has a Subnet's counts told, and those of its IPPools.
func (t *term) recount(subnet string) {
	t.queue.Add(object.Key{Kind: kindStatus, Name: subnet})
	for _, p := range t.nets.Pools().In(subnet) {
		t.queue.Add(object.Key{Kind: object.KindPool, Name: p})
	}
}

// counted is recount, and has the Subnet's rows looked at when nobody has an address
// of it any more.
func (t *term) counted(subnet string) {
	t.recount(subnet)
	if t.nets.Freed(subnet) {
		t.queue.Add(object.Key{Kind: kindNetworks})
	}
	if net, _, inForce := t.nets.Get(subnet); (!inForce || claim.Needed(net.Subnet) && t.hasSwitch(subnet)) && t.book.Empty(subnet) {
		t.queue.Add(object.Key{Kind: object.KindSubnet, Name: subnet})
	}
}

// switchOf notes the Vpc of a Subnet that has rows now, "" for none, and gives
// the one before.
func (t *term) switchOf(subnet, vpc string) (before string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.switches[subnet]
	if vpc == "" {
		delete(t.switches, subnet)
	} else {
		t.switches[subnet] = vpc
	}
	return before
}

// hasSwitch tells that a Subnet has rows.
func (t *term) hasSwitch(subnet string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.switches[subnet] != ""
}

// switched tells that a Subnet of a Vpc has rows, or may have.
func (t *term) switched(vpc string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.switches {
		if v == vpc || v == anyVpc {
			return true
		}
	}
	return false
}

// vpcsOf are the keys of a Vpc; of all that have rows where it is not known.
func (t *term) vpcsOf(vpc string) []object.Key {
	if vpc != anyVpc {
		return []object.Key{{Kind: object.KindVpc, Name: vpc}}
	}
	var out []object.Key
	owners, err := t.DB.Owners()
	if err != nil {
		return nil // it comes back with everything else
	}
	for _, o := range owners {
		if k, ok := object.KeyOf(o); ok && k.Kind == object.KindVpc {
			out = append(out, k)
		}
	}
	return out
}
