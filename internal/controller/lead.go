package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Config is what a Controller is made of.
type Config struct {
	object.World
	DB Database
	// Join is the nodes' Subnet where no object of that name declares it.
	Join core.Subnet
	// Workers is how many objects are worked on at once, and a quarter as many records
	// of what was done; 0 is 32. Their rows share transactions.
	Workers int
	// Done, unless it is nil, hears of each object that was worked on: its kind,
	// how long that took, and what came of it.
	Done func(kind object.Kind, took time.Duration, err error)
	// Well, unless it is nil, hears of each object of which the last event holds no
	// more.
	Well func(object.Key)
	Log  *slog.Logger
}

// Database is what the controller needs of the northbound database;
// ovn.Client documents the methods.
type Database interface {
	Take(ctx context.Context, holder string) (epoch uint64, err error)
	Leads() error
	Apply(ctx context.Context, set *ovn.Set) error
	Ports() ([]ovn.Port, error)
	Owners() ([]string, error)
	Complete(ctx context.Context) error
}

// Controller leads, one time after another. Its methods may be called at once
// from many goroutines.
type Controller struct {
	Config
	mu  sync.Mutex
	now *term // nil while this controller does not lead
}

// New makes a Controller that does not lead yet.
func New(c Config) *Controller {
	c.Workers = cmp.Or(c.Workers, 32)
	return &Controller{Config: c}
}

// Kinds of keys of the queue that no object has: networks compares all Subnets
// in force with those before, status writes a Subnet's counts, everything has
// all objects looked at, vlans compares all Vlans, locals is what names in load
// balancers stand for on each node.
const (
	kindVlans    object.Kind = "vlans"
	kindLocals   object.Kind = "locals"
	kindAll      object.Kind = "everything"
	kindNetworks object.Kind = "networks"
	kindStatus   object.Kind = "status"
)

// Pauses after failures: the first, and the longest but for a quarter.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 30 * time.Second
)

// fenceLook is how often the leader looks whether another took the database: a
// write would tell it, and an idle one writes nothing.
const fenceLook = time.Second

// Looks in a row that find nothing to do before all rows are said to be there, and the
// pause between two of them: longer than the first pause after a failure.
const (
	completeLook  = 100 * time.Millisecond
	completeLooks = 3
)

// term is one time of leading.
type term struct {
	Config
	book   *book.Book
	claims *claim.Keeper
	nets   *networks
	rules  *policies
	guards *guards
	// sharers are, by Vip, the pods that may send from its addresses.
	sharers *guards
	queue   lanes

	mu       sync.Mutex
	told     map[string]logical.Subnet   // Subnets that were in force when they were compared last
	look     uint64                      // whose these are (networks.Since)
	switches map[string]string           // Vpc by Subnet that has rows; anyVpc where that is not known
	waiting  map[object.Key]string       // what failed, and the Subnet or Vpc that it needs; "" for none
	faults   map[string]error            // why Subnets have no rows
	keepers  map[string]object.Owner     // that keep addresses for pods of a name, by namespace/name
	warned   map[object.Key]object.Event // the last event about an object that is not well
	lending  sync.Mutex                  // held while an address goes between a Vip and a pod
	local    sync.Mutex                  // makes locals one after the other
	chassis  map[string][]logical.Place  // nodes by the chassis that had one in this term; only locals has it
	named    atomic.Bool                 // there was a Service for which it matters where clients are
}

// anyVpc stands for the Vpc of rows that an earlier leader wrote.
const anyVpc = "*"

// Lead takes the database, restores who has which address from its rows and
// from the pods' annotations, and then makes everything what it should be until
// ctx ends or another takes the database: the error wraps ovn.ErrFenced then.
// It serves each object as soon as what that needs is there, and waits for no
// others. It may be called again.
func (c *Controller) Lead(ctx context.Context, holder string) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	addresses := book.New()
	t := &term{
		Config: c.Config, book: addresses, nets: newNetworks(c.Readers, c.Join, addresses), rules: newPolicies(c.Readers), guards: newGuards(), sharers: newGuards(), queue: newLanes(),
		told: map[string]logical.Subnet{}, switches: map[string]string{}, waiting: map[object.Key]string{}, warned: map[object.Key]object.Event{}, keepers: map[string]object.Owner{}, faults: map[string]error{}, chassis: map[string][]logical.Place{},
	}
	t.keepClaims()
	if err := c.Follow(ctx, t.changed); err != nil {
		return fmt.Errorf("read the objects: %w", err)
	}
	if _, err := c.DB.Take(ctx, holder); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.restore(ctx); err != nil {
		return err
	}
	t.nets.restored()
	t.restoreFaces()
	t.restoreGuards()
	c.mu.Lock()
	c.now = t
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now = nil
		c.mu.Unlock()
	}()
	if err := t.everything(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { t.guard(ctx, end) })
	wg.Go(func() { t.complete(ctx) })
	t.queue.Run(ctx, c.Workers, func(ctx context.Context, k object.Key) error { return t.do(ctx, k, end) })
	wg.Wait()
	return context.Cause(ctx)
}

// Touched has the rows of an owner looked at: they are not what was written
// (ovn.Config.OnTouch). Where its port group was lost, its pods come into the new
// one; else they are in it still, and what this controller itself writes into an
// address set has nobody look at all pods.
func (c *Controller) Touched(owner string, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := keyOf(owner); ok && c.now != nil {
		if lost && k.Kind == object.KindPolicy {
			c.now.rules.Changed(k)
		}
		if lost && k.Kind == object.KindGroup {
			c.now.queue.Add(c.now.guards.lost(k.Name)...)
		}
		c.now.queue.Add(k)
	}
}

// Resync has every object looked at again. It is for a database that was away:
// nobody told what changed in it meanwhile (ovn.Config.OnUp).
func (c *Controller) Resync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.queue.Add(object.Key{Kind: kindAll})
	}
}

// Pending is how many objects wait to be worked on or are worked on now, those
// that wait out a pause after a failure not counted; false while this controller
// does not lead.
func (c *Controller) Pending() (n int, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return 0, false
	}
	return c.now.queue.Len(), true
}

// keyOf is the object of an owner of rows.
func keyOf(owner string) (object.Key, bool) {
	kind, rest, _ := strings.Cut(owner, "/")
	switch kind {
	case "vpc":
		return object.Key{Kind: object.KindVpc, Name: rest}, true
	case "subnet":
		return object.Key{Kind: object.KindSubnet, Name: rest}, true
	case "node":
		return object.Key{Kind: object.KindNode, Name: rest}, true
	case "pod":
		namespace, name, ok := strings.Cut(rest, "/")
		return object.KindPod.Named(namespace, name), ok
	case "service":
		namespace, name, ok := strings.Cut(rest, "/")
		return object.KindService.Named(namespace, name), ok
	case "vip":
		return object.Key{Kind: object.KindVip, Name: rest}, true
	case logical.LocalOwner:
		return object.Key{Kind: kindLocals}, true
	case "securitygroup":
		return object.Key{Kind: object.KindGroup, Name: rest}, true
	case "networkpolicy":
		namespace, name, ok := strings.Cut(rest, "/")
		return object.KindPolicy.Named(namespace, name), ok
	}
	return object.Key{}, false
}

// changed takes news of an object.
func (t *term) changed(k object.Key) {
	switch k.Kind {
	case object.KindSubnet: // its rows are looked at when it is in force otherwise, and not with each count
		t.nets.Changed(k)
		t.queue.Add(object.Key{Kind: kindNetworks}, object.Key{Kind: kindVlans}, object.Key{Kind: kindStatus, Name: k.Name})
	case object.KindNamespace, object.KindPool, object.KindVpc:
		t.nets.Changed(k)
		t.queue.Add(object.Key{Kind: kindNetworks}, object.Key{Kind: kindVlans}, k)
	case object.KindVlan:
		t.queue.Add(object.Key{Kind: kindVlans})
	case object.KindPolicy:
		t.rules.Changed(k)
		t.queue.Add(k)
	case object.KindNAD:
		t.rouse("")
	case object.KindNode:
		t.queue.Add(k, object.Key{Kind: kindLocals})
	default:
		t.queue.Add(k)
	}
}

// settle waits until the replica of the database shows that it was taken, and
// with that all that was written before.
func (t *term) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := t.DB.Leads()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// guard ends the term when another took the database.
func (t *term) guard(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(fenceLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := t.DB.Leads(); errors.Is(err, ovn.ErrFenced) {
				end(err)
			}
		}
	}
}

// complete says in the database that all rows are there, once there has been nothing to
// do for a moment: a database that began anew shows no node half of what it needs.
func (t *term) complete(ctx context.Context) {
	tick := time.NewTicker(completeLook)
	defer tick.Stop()
	for idle := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if idle++; t.queue.Len() > 0 {
			idle = 0
		}
		if idle < completeLooks {
			continue
		}
		err := t.DB.Complete(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		t.Log.Warn("what follows the northbound database is not told that all rows are there; it is tried again", "err", err)
		idle = 0
	}
}

// everything has all objects looked at, and all that have rows.
func (t *term) everything() error {
	owners, err := t.DB.Owners()
	if err != nil {
		return err
	}
	keys := append([]object.Key{{Kind: object.KindVpc, Name: v1.DefaultVpc}, {Kind: kindNetworks}, {Kind: kindVlans}, {Kind: kindLocals}}, t.allPolicies()...)
	keys = append(keys, t.moreKeys()...)
	for _, v := range t.Vpcs.List() {
		keys = append(keys, object.Key{Kind: object.KindVpc, Name: v.Name})
	}
	for name := range t.nets.All() {
		keys = append(keys, object.Key{Kind: object.KindSubnet, Name: name})
	}
	for _, s := range t.Subnets.List() {
		keys = append(keys, object.Key{Kind: object.KindSubnet, Name: s.Name})
	}
	for _, p := range t.Pools.List() {
		keys = append(keys, object.Key{Kind: object.KindPool, Name: p.Name})
	}
	for _, n := range t.Nodes.List() {
		keys = append(keys, object.Key{Kind: object.KindNode, Name: n.Name})
	}
	for _, p := range t.Pods.List() {
		keys = append(keys, object.KindPod.Named(p.Namespace, p.Name))
	}
	for _, s := range t.Services.List() {
		keys = append(keys, object.KindService.Named(s.Namespace, s.Name))
	}
	for _, o := range owners {
		if k, ok := keyOf(o); ok {
			keys = append(keys, k)
		}
	}
	t.queue.Add(append(keys, t.addresses()...)...)
	return nil
}

// do works on one key. An error of the fence ends the term.
func (t *term) do(ctx context.Context, k object.Key, end context.CancelCauseFunc) error {
	began := time.Now()
	err := t.work(ctx, k)
	if t.Done != nil {
		t.Done(k.Kind, time.Since(began), err)
	}
	switch {
	case errors.Is(err, ovn.ErrFenced):
		end(err)
	case err != nil && ctx.Err() == nil:
		t.Log.Warn("an object is not as it should be yet; it is tried again", "object", k, "err", err)
	}
	return err
}

// work makes what a key names what it should be.
func (t *term) work(ctx context.Context, k object.Key) error {
	switch k.Kind {
	case object.KindVpc:
		return t.vpc(ctx, k)
	case object.KindSubnet:
		return t.subnet(ctx, k)
	case object.KindNode:
		return t.node(ctx, k)
	case object.KindPod:
		return t.pod(ctx, k)
	case object.KindService:
		return t.service(ctx, k)
	case object.KindPolicy:
		return t.policy(ctx, k)
	case object.KindIP:
		if !strings.HasPrefix(k.Name, logical.VipPort("")) { // which has an object of its own
			return t.ip(ctx, k)
		}
		return nil
	case object.KindPool:
		return t.pool(ctx, k)
	case kindStatus:
		return t.status(ctx, k)
	case kindAll:
		return t.everything()
	}
	return t.more(ctx, k)
}

// more is work for the kinds that networks can do without.
func (t *term) more(ctx context.Context, k object.Key) error {
	switch k.Kind {
	case object.KindClaim:
		return t.claims.Heed(ctx, k.Name)
	case object.KindGroup:
		return t.securityGroup(ctx, k)
	case object.KindVip:
		return t.vip(ctx, k)
	case object.KindQoS:
		return t.qos(ctx, k)
	case kindVlans:
		return t.vlans(ctx)
	case kindLocals:
		if err := t.locals(ctx); !errors.As(err, new(*ovn.UnsupportedError)) { // of which Services tell
			return err
		}
		return nil
	}
	t.heed(k)
	return nil
}

// moreKeys are the keys of those kinds.
func (t *term) moreKeys() (keys []object.Key) {
	for _, g := range t.Groups.List() {
		keys = append(keys, object.Key{Kind: object.KindGroup, Name: g.Name})
	}
	for _, v := range t.Vips.List() {
		keys = append(keys, object.Key{Kind: object.KindVip, Name: v.Name})
	}
	for _, q := range t.QoS.List() {
		keys = append(keys, object.Key{Kind: object.KindQoS, Name: q.Name})
	}
	return keys
}

// heed has others looked at, for whom a key is news.
func (t *term) heed(k object.Key) {
	switch k.Kind {
	case object.KindSet:
		t.set(k)
	case object.KindNamespace:
		t.namespace(k.Name)
	case kindNetworks:
		t.compare()
	}
}

// compare has Subnets looked at that are in force otherwise than before, and
// all that waits for something.
func (t *term) compare() {
	t.mu.Lock()
	look := t.look
	t.mu.Unlock()
	now, look := t.nets.Since(look)
	if now == nil {
		return
	}
	t.mu.Lock()
	names := logical.Differ(t.told, now)
	for _, name := range names {
		for _, of := range []map[string]logical.Subnet{t.told, now} {
			if s, ok := of[name]; ok {
				t.queue.Add(object.Key{Kind: object.KindVpc, Name: s.Vpc}) // its status names its Subnets
			}
		}
	}
	t.told, t.look = now, look
	t.mu.Unlock()
	for _, name := range names {
		t.queue.Add(object.Key{Kind: object.KindSubnet, Name: name})
		if name == logical.JoinSubnet {
			t.queue.Add(object.Key{Kind: object.KindVpc, Name: v1.DefaultVpc})
			t.queue.Add(t.allPolicies()...)
			for _, n := range t.Nodes.List() {
				t.queue.Add(object.Key{Kind: object.KindNode, Name: n.Name})
			}
		}
	}
	if len(names) > 0 {
		t.rouse("")
	}
}
