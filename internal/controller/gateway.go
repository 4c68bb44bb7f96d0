package controller

import (
	"context"
	"errors"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// exits makes the ways by which pods of centralized Subnets leave the cluster, and tells
// the Subnets.
func (t *term) exits(ctx context.Context, k object.Key) error {
	plan := t.gateways.Look(t.Readers, t.nets.All(), t.book.At, t.Seen)
	if err := t.DB.Apply(ctx, plan.Rows); err != nil {
		t.awaits(k, v1.DefaultVpc, "")
		return err
	}
	t.gateways.Written(plan)
	t.queue.Add(plan.Keys(kindStatus)...)
	err := t.gateways.Tell(ctx, plan, t.World)
	t.calm(k)
	return errors.Join(err, t.DB.Answer(ctx))
}

// Heard has the gateways looked at: a node answers no more, or again (Config.Seen), or
// another controller asks whether this one does.
func (c *Controller) Heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.queue.Add(object.Key{Kind: kindExits})
	}
}
