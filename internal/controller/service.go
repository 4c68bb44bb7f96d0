package controller

import (
	"context"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/ovn"
)

// service makes a Service's load balancers what it and its endpoints say.
func (t *term) service(ctx context.Context, k Key) error {
	s, ok := t.Services.Get(k.Namespace, k.Name)
	if !ok {
		t.calm(k)
		return t.DB.Apply(ctx, &ovn.Set{Owner: logical.ServiceOwner(k.Namespace, k.Name)})
	}
	if err := t.DB.Apply(ctx, logical.Balance(s, t.Endpoints(k.Namespace, k.Name))); err != nil {
		t.awaits(k, v1.DefaultVpc)
		return err
	}
	undone := s.Undone()
	if len(undone) == 0 {
		t.calm(k)
		return nil
	}
	t.served(k)
	t.say(ctx, Object{Key: k, UID: s.UID}, Event{Reason: status.Fields, Message: "not carried out: " + strings.Join(undone, "; ")})
	return nil
}
