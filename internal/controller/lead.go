package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/groups"
	"github.com/fairlead/fairlead/internal/controller/lanes"
	"github.com/fairlead/fairlead/internal/controller/launcher"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/networks"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Config is what a Controller is made of.
type Config struct {
	object.World
	DB Database
	// Join is the nodes' Subnet where no object of that name declares it.
	Join core.Subnet
	// Declared tells what is declared of pods by their names, nil where nothing is.
	// Redeclared hears that it changed.
	Declared     resolve.Declarer
	gateway.Seen // of gateways
	// Workers is how many objects are worked on at once, and a quarter as many records
	// of what was done; 0 is 32. Their rows share transactions.
	Workers int
	// Outside: package external gives pods addresses outside.
	Outside bool
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
	Answer(ctx context.Context) error
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
	c.World = launcher.World(c.World)
	return &Controller{Config: c}
}

// Kinds of keys of the queue that no object has: networks compares all Subnets
// in force with those before, status writes a Subnet's counts, everything has
// all objects looked at, vlans compares all Vlans, locals is what names in load
// balancers stand for on each node, exits are the gateways of all centralized Subnets.
const (
	kindVlans    object.Kind = "vlans"
	kindUplinks  object.Kind = "providers"
	kindLocals   object.Kind = object.KindLocals
	kindExits    object.Kind = object.KindExits
	kindAll      object.Kind = "everything"
	kindNetworks object.Kind = "networks"
	kindSpace    object.Kind = "annotations of a namespace"
	kindStatus   object.Kind = "status"
)

// kindsOf is which of them are behind others, and before all: IP objects, counts and
// annotations of namespaces are records, and another gateway waits for no burst of pods.
var kindsOf = lanes.Of{Records: map[object.Kind]bool{object.KindIP: true, kindStatus: true, kindSpace: true}, Alone: kindExits}

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
	nets   *networks.Networks
	rules  *policies
	guards *groups.Members
	// gateways remembers by which nodes pods of centralized Subnets leave.
	gateways *gateway.Keeper
	// sharers are, by Vip, the pods that may send from its addresses.
	sharers *groups.Members
	queue   lanes.Lanes

	pods sync.Map // that were there in this term, by namespace/name
	seen sync.Map // Services, nodes, NetworkPolicies, SecurityGroups and Vips that were, or are proven to be gone, by key

	mu       sync.Mutex
	told     map[string]*logical.Subnet // Subnets that were in force when they were compared last
	look     uint64                     // whose these are (networks.Since)
	homes    uint64                     // as they were then (networks.Homes)
	blamed   map[string]string          // what was wrong with Subnets then
	switches map[string]string          // Vpc by Subnet that has rows; anyVpc where that is not known
	waiting  map[object.Key]awaited     // what failed, and what it needs
	faults   map[string]error           // why Subnets have no rows
	keepers  map[string]object.Owner    // that keep addresses for pods of a name, by namespace/name
	warned   map[object.Key]warning     // the last event about an object that is not well
	lending  sync.Mutex                 // held while an address goes between a Vip and a pod
	making   sync.Mutex                 // held while a SecurityGroup's rows are made for the Vpcs that there are
	local    sync.Mutex                 // makes locals one after the other
	chassis  map[string][]logical.Place // nodes by the chassis that had one in this term; only locals has it
	named    atomic.Bool                // there was a Service for which it matters where clients are
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
		Config: c.Config, book: addresses, nets: networks.New(c.Readers, c.Join, addresses), rules: newPolicies(c.Readers), guards: groups.New(), gateways: gateway.New(), sharers: groups.New(), queue: lanes.New(kindsOf),
		told: map[string]*logical.Subnet{}, switches: map[string]string{}, waiting: map[object.Key]awaited{}, warned: map[object.Key]warning{}, keepers: map[string]object.Owner{}, faults: map[string]error{}, chassis: map[string][]logical.Place{},
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
	t.nets.Restored()
	for _, n := range t.Nodes.List() {
		t.claims.Hold(n.Name, n.Holds)
	}
	if err := t.restoreFaces(); err != nil {
		return err
	}
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
	if k, ok := object.KeyOf(owner); ok && c.now != nil {
		if lost && k.Kind == object.KindPolicy {
			c.now.rules.Changed(k)
		}
		if lost && k.Kind == object.KindGroup {
			c.now.queue.Add(c.now.guards.Lost(k.Name)...)
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

// changed takes news of an object.
func (t *term) changed(k object.Key) {
	switch k.Kind {
	case object.KindSubnet: // its rows are looked at when it is in force otherwise, and not with each count
		t.nets.Changed(k)
		t.queue.Add(object.Key{Kind: kindNetworks}, object.Key{Kind: kindVlans}, object.Key{Kind: kindStatus, Name: k.Name})
	case object.KindNamespace, object.KindPool, object.KindVpc:
		t.nets.Changed(k)
		t.queue.Add(object.Key{Kind: kindNetworks}, object.Key{Kind: kindVlans}, k)
		if k.Kind == object.KindNamespace {
			t.queue.Add(object.Key{Kind: kindSpace, Name: k.Name})
		}
	case object.KindVlan, object.KindProvider:
		t.nets.Changed(k)
		t.queue.Add(object.Key{Kind: kindNetworks}, object.Key{Kind: kindVlans}, object.Key{Kind: kindUplinks})
	case object.KindPolicy:
		t.rules.Changed(k)
		t.queue.Add(k)
	case object.KindNAD:
		t.rouse("")
	case object.KindNode:
		t.nets.Changed(k)
		t.queue.Add(k, object.Key{Kind: kindNetworks}, object.Key{Kind: kindLocals}, object.Key{Kind: kindUplinks}, object.Key{Kind: kindExits})
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
	keys := append([]object.Key{{Kind: object.KindVpc, Name: v1.DefaultVpc}, {Kind: kindNetworks}, {Kind: kindVlans}, {Kind: kindUplinks}, {Kind: kindLocals}, {Kind: kindExits}}, t.allPolicies()...)
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
	keys = append(keys, t.nodeKeys()...)
	for _, p := range t.Pods.List() {
		keys = append(keys, object.KindPod.Named(p.Namespace, p.Name))
	}
	for _, s := range t.Services.List() {
		keys = append(keys, object.KindService.Named(s.Namespace, s.Name))
	}
	for _, o := range owners {
		if k, ok := object.KeyOf(o); ok {
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
		if !strings.Contains(k.Name, "/") { // a Vip's or a router's, which have no object of this kind
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
	case kindUplinks:
		return t.providers(ctx)
	case kindExits:
		return t.exits(ctx, k)
	case object.KindNetwork:
		return t.redeclared(ctx)
	case kindSpace:
		return t.space(ctx, k)
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
	keys = t.groupKeys()
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
	case object.KindSet, object.KindMachine:
		t.keeper(k)
	case object.KindNamespace:
		t.namespace(k.Name)
	case kindNetworks:
		t.compare()
	}
}

// blame has Subnets told of which something else is wrong than before, and nodes: it may
// be that they are in it, or that it is theirs and there is no object of it.
func (t *term) blame(now map[string]string) {
	t.mu.Lock()
	before := t.blamed
	t.blamed = now
	t.mu.Unlock()
	if maps.Equal(before, now) {
		return
	}
	for _, of := range []map[string]string{before, now} {
		for name := range of {
			if before[name] != now[name] {
				t.queue.Add(object.Key{Kind: kindStatus, Name: name})
			}
		}
	}
	if why := now[logical.JoinSubnet]; why != "" && why != before[logical.JoinSubnet] {
		t.Log.Warn("the nodes' network is not what was declared", "subnet", logical.JoinSubnet, "why", why)
	}
	t.queue.Add(t.nodeKeys()...)
}

// podsIn are the keys of the pods that have addresses of some Subnets.
func (t *term) podsIn(subnets map[string]bool) (keys []object.Key) {
	for _, l := range t.book.All() {
		if p := l.Owner.Pod; subnets[l.Subnet] && p.Namespace != "" {
			keys = append(keys, object.KindPod.Named(p.Namespace, p.Name))
		}
	}
	return keys
}

// nodeKeys are the keys of all nodes.
func (t *term) nodeKeys() (keys []object.Key) {
	for _, n := range t.Nodes.List() {
		keys = append(keys, object.Key{Kind: object.KindNode, Name: n.Name})
	}
	return keys
}

// spaces are the keys of the annotations of namespaces whose pods may come to one of some
// Subnets, or of all namespaces.
func (t *term) spaces(of []core.Subnet, all bool) (keys []object.Key) {
	fits := func(s core.Subnet) bool { return s.Default || s.Name == v1.DefaultSubnet }
	if !all && !slices.ContainsFunc(of, fits) {
		for _, s := range of {
			for _, ns := range s.Namespaces {
				keys = append(keys, object.Key{Kind: kindSpace, Name: ns})
			}
		}
		return keys
	}
	for _, ns := range t.Namespaces.List() {
		keys = append(keys, object.Key{Kind: kindSpace, Name: ns.Name})
	}
	return keys
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
	t.queue.Add(object.Key{Kind: kindExits})
	homes := t.nets.Homes()
	t.mu.Lock()
	names, moved := networks.Differ(t.told, now), map[string]bool{}
	var come []core.Subnet
	for _, name := range names {
		was, is := t.told[name], now[name]
		if is != nil && (was == nil || networks.PodsDiffer(was, is)) {
			moved[name] = true
		}
		for _, s := range []*logical.Subnet{was, is} {
			if s != nil {
				t.queue.Add(object.Key{Kind: object.KindVpc, Name: s.Vpc}) // its status names its Subnets
				come = append(come, s.Subnet)
			}
		}
	}
	all := homes != t.homes
	t.told, t.look, t.homes = now, look, homes
	t.mu.Unlock()
	t.blame(t.nets.Faults())
	t.queue.Add(t.spaces(come, all)...)
	if len(moved) > 0 {
		t.queue.Add(t.podsIn(moved)...)
	}
	for _, name := range names {
		t.queue.Add(object.Key{Kind: object.KindSubnet, Name: name})
		if name == logical.JoinSubnet {
			t.queue.Add(object.Key{Kind: object.KindVpc, Name: v1.DefaultVpc})
			t.queue.Add(t.allPolicies()...)
			t.queue.Add(t.nodeKeys()...)
		}
	}
	if len(names) > 0 {
		t.rouse("")
	}
}
