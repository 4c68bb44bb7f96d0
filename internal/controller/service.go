package controller

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/ovn"
)

// service makes a Service's load balancers what it and its endpoints say.
func (t *term) service(ctx context.Context, k object.Key) error {
	s, ok := t.Services.Get(k.Namespace, k.Name)
	from := t.Endpoints(k.Namespace, k.Name)
	var old *ovn.UnsupportedError
	if ok && s.PerNode(from) { // before its load balancers, which are nothing without
		if err := t.locals(ctx); err != nil && !errors.As(err, &old) {
			return err
		}
	} else if t.named.Load() { // it may have been: what they stand for goes after them
		defer t.queue.Add(object.Key{Kind: kindLocals})
	}
	if !ok {
		return t.unmake(ctx, k, logical.ServiceOwner(k.Namespace, k.Name))
	}
	t.seen.Store(k, nil)
	s.Even = old != nil
	if err := t.DB.Apply(ctx, logical.Balance(s, from)); err != nil {
		t.awaits(k, v1.DefaultVpc, "")
		return err
	}
	undone := s.Undone(from, old)
	if len(undone) == 0 {
		t.calm(k)
		return nil
	}
	t.served(k)
	return t.say(ctx, object.Object{Key: k, UID: s.UID}, object.Event{Reason: status.Fields, Message: "not carried out: " + strings.Join(undone, "; ")})
}

// locals makes what names in load balancers stand for on each node what the Services
// say whose clients reach other endpoints on each.
func (t *term) locals(ctx context.Context) error {
	t.local.Lock()
	defer t.local.Unlock()
	services := slices.DeleteFunc(slices.Clone(t.Services.List()), func(s logical.Service) bool { return !s.PerNode(t.Endpoints(s.Namespace, s.Name)) })
	t.named.Store(len(services) > 0)
	for name := range t.chassis { // its row stays when its node goes
		t.chassis[name] = nil
	}
	for _, n := range t.Nodes.List() {
		if name := n.Annotations[v1.AnnChassis]; name != "" {
			t.chassis[name] = append(t.chassis[name], logical.Place{Node: n.Name, Zone: n.Zone})
		}
	}
	return t.DB.Apply(ctx, logical.Locals(services, t.Endpoints, t.chassis))
}
