package controller

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/ovn"
)

// service makes a Service's load balancers what it and its endpoints say.
func (t *term) service(ctx context.Context, k Key) error {
	s, ok := t.Services.Get(k.Namespace, k.Name)
	var old *ovn.UnsupportedError
	if ok && s.Local { // before its load balancers, which are nothing without
		if err := t.locals(ctx); errors.As(err, &old) {
			s.Local = false
		} else if err != nil {
			return err
		}
	} else if t.named.Load() { // it may have been: what they stand for goes after them
		defer t.queue.Add(Key{Kind: kindLocals})
	}
	if !ok {
		t.calm(k)
		return t.DB.Apply(ctx, &ovn.Set{Owner: logical.ServiceOwner(k.Namespace, k.Name)})
	}
	if err := t.DB.Apply(ctx, logical.Balance(s, t.Endpoints(k.Namespace, k.Name))); err != nil {
		t.awaits(k, v1.DefaultVpc)
		return err
	}
	undone := s.Undone()
	if old != nil {
		undone = append(undone, "spec.internalTrafficPolicy: Local ("+old.Error()+")")
	}
	if len(undone) == 0 {
		t.calm(k)
		return nil
	}
	t.served(k)
	t.say(ctx, Object{Key: k, UID: s.UID}, Event{Reason: status.Fields, Message: "not carried out: " + strings.Join(undone, "; ")})
	return nil
}

// locals makes what names in load balancers stand for on each node what the Services
// with internalTrafficPolicy: Local say.
func (t *term) locals(ctx context.Context) error {
	t.local.Lock()
	defer t.local.Unlock()
	services := t.Services.List()
	t.named.Store(slices.ContainsFunc(services, func(s logical.Service) bool { return s.Local }))
	for name := range t.chassis { // its row stays when its node goes
		t.chassis[name] = nil
	}
	for _, n := range t.Nodes.List() {
		if name := n.Annotations[v1.AnnChassis]; name != "" {
			t.chassis[name] = append(t.chassis[name], n.Name)
		}
	}
	return t.DB.Apply(ctx, logical.Locals(services, t.Endpoints, t.chassis))
}
