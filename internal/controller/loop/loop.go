// Package loop is the controller's life: a Config in, and Run until its context
// ends. It puts the parts together: objects, database, election, reconcilers and
// what is served over HTTP. It knows no flag and no environment.
package loop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/alive"
	"github.com/fairlead/fairlead/internal/controller/external"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/interconnect"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/standin"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/httpserve"
	"github.com/fairlead/fairlead/internal/lib/parts"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/ovn/ic"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/settings"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Config is what a controller is told. Its fields are the flags of
// `fairlead-controller`.
type Config struct {
	// Kubeconfig leads to the API server; "" is the service account of the pod that
	// this runs in.
	Kubeconfig string
	// NB is the northbound database's endpoint (ovn.Config).
	NB string
	// CertificateLife is how long a certificate is good for that this controller
	// signs: of OVN's central part and of chassis.
	CertificateLife time.Duration
	// JoinCIDR is one prefix or two, with a comma, for the nodes' Subnet where no
	// object declares it.
	JoinCIDR string
	// Namespace and LeaseName are those of the Lease that decides who leads, Lease
	// how long a leader that renews no more is waited for, ID this candidate's name;
	// "" is one made of the host's.
	Namespace, LeaseName string
	Lease                time.Duration
	ID                   string
	// PodNetworkNamespaces are those whose labelled ConfigMaps declare settings of their
	// pods; those of Namespace, if it is among them, of all pods.
	PodNetworkNamespaces []string
	// Workers is how many objects are worked on at once.
	Workers int
	// HTTP is an address for metrics and probes, "" for none.
	HTTP string

	// Echo gives a line of echo requests, and Routers are those by which this machine
	// leaves its network.
	Echo    func(ctx context.Context, heard func(netip.Addr)) (alive.Line, error)
	Routers func() []netip.Addr

	Version, Revision string
	Log               *slog.Logger
}

// leadAgain is the pause of a leader after an error that another may not have.
const leadAgain = time.Second

// join is the nodes' Subnet.
func (c *Config) join() (core.Subnet, error) {
	s, faults := declare.ReadSubnet(logical.JoinSubnet, v1.SubnetSpec{CIDRBlock: c.JoinCIDR})
	if len(faults) > 0 {
		return core.Subnet{}, hint.Usagef("--join-cidr: %s", faults[0])
	}
	return s.Subnet, nil
}

// complete says what is wrong with the flags, and fills in the name.
func (c *Config) complete() error {
	switch {
	case c.Workers < 1:
		return hint.Usagef("--workers is at least 1")
	case c.Lease < 2*time.Second || c.Lease%time.Second != 0:
		return hint.Usagef("--lease-duration is at least 2s, in whole seconds")
	case c.CertificateLife < 10*time.Second:
		return hint.Usagef("--certificate-life is at least 10s")
	case c.NB == "":
		return hint.Usagef("--nb is empty")
	case c.ID != "":
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of the host: %w", err)
	}
	c.ID = strings.ToLower(host) + "_" + strings.ToLower(rand.Text())
	return nil
}

// certificates gives this controller's own certificate, and the part that keeps it,
// if one is needed, and beside it the CAs while this controller holds their Lease.
func (c *Config) certificates(to login.Login) (self *kube.Identity, keep func(context.Context) error, err error) {
	authority, err := kube.NewAuthority(to.REST, c.Namespace, c.CertificateLife, c.Log)
	if err != nil {
		return nil, nil, err
	}
	self, err = kube.NewIdentity(to.REST, kube.IdentityConfig{Namespace: c.Namespace, Name: c.ID, Log: c.Log})
	if err != nil {
		return nil, nil, err
	}
	return self, func(ctx context.Context) error {
		var own sync.WaitGroup
		defer own.Wait()
		if c.secure() {
			own.Go(func() { self.Run(ctx) })
		}
		return kube.Elect(ctx, to.REST, kube.Election{
			Namespace: c.Namespace, Name: fairlead.CAName, ID: c.ID, Lease: c.Lease, Lead: authority.Run,
			Reach: func(context.Context) error { return nil }, // central's certificates come before its databases
			Log:   c.Log.With("lease", fairlead.CAName),
		})
	}, nil
}

// secure tells that a certificate is needed for the northbound database.
func (c *Config) secure() bool { return slices.ContainsFunc(strings.Split(c.NB, ","), isTLS) }

func isTLS(endpoint string) bool { return strings.HasPrefix(endpoint, "ssl:") }

// Run gives addresses and makes networks until ctx ends, whenever this controller
// leads. A wrong Config is a hint.UsageError.
func Run(ctx context.Context, c Config) error {
	log := c.Log
	if err := c.complete(); err != nil {
		return err
	}
	join, err := c.join()
	if err != nil {
		return err
	}
	var count *metrics
	login.LogTo(log)
	logins := login.New(login.Config{
		Kubeconfig: c.Kubeconfig, UserAgent: "fairlead-controller/" + c.Version, Log: log,
		Requested: func(method string, status int) { count.requested(method, status) },
	})
	to, err := logins.Current()
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	to.REST.QPS = -1 // the workers bound it
	objects, err := kube.New(to.REST, log)
	if err != nil {
		return err
	}
	self, keep, err := c.certificates(to)
	if err != nil {
		return err
	}
	var (
		ctl   *controller.Controller
		ports keepers
	)
	var instead *standin.Keeper
	watch := c.watch(objects.World(), func() { ctl.Heard(); instead.Poke() }, func() { instead.Poke() })
	db := ovn.New(ovn.Config{
		Endpoint: c.NB, TLS: self.TLS(), Log: log, OnQuestion: func() { ctl.Heard() },
		OnUp: func() { ctl.Resync(); ports.poke() }, OnTouch: func(owner string, lost bool) { ctl.Touched(owner, lost); ports.touched(owner) },
	})
	count = newMetrics(c.states(func() (int, bool) { return ctl.Pending() }, watch.Blind, db, objects, self))
	declared := settings.New(settings.Config{Login: logins.Current, Namespaces: c.PodNetworkNamespaces, Common: c.Namespace, Log: log})
	ctl = controller.New(controller.Config{
		World: objects.World(), DB: db, Join: join, Declared: declared, Seen: gateway.Seen{Silent: watch.Silent, Routes: db.Routes}, Workers: c.Workers, Outside: true, Done: count.done, Log: log,
	})
	ports = c.keepers(objects, db, join)
	instead = c.standIn(objects.World(), db, ctl, watch, count)
	serve, err := httpserve.Open(ctx, c.HTTP, pages(count, db, objects))
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--http: %w", err)}
	}
	return parts.Run(ctx,
		func(context.Context) error { return serve() },
		keep,
		func(ctx context.Context) error { db.Run(ctx); return nil },
		func(ctx context.Context) error { objects.Run(ctx); return nil },
		func(ctx context.Context) error { follow(ctx, declared, ctl); return nil },
		watch.Run, instead.Run,
		func(ctx context.Context) error { return objects.Guard(ctx, db, c.wentBack(ctx, objects, count)) },
		leader{&c, ctl, objects, db, ports}.elected(to))
}

// follow reads what is declared of pods by their names, and has pods looked at for it.
func follow(ctx context.Context, from *settings.Source, ctl *controller.Controller) {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { from.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-from.Redeclared():
			ctl.Redeclared()
		}
	}
}

// keepers keep the ports of the default Vpc's router that lead out of the cluster: to a network
// outside, and to other clusters.
type keepers struct {
	outside *external.Keeper
	others  *interconnect.Keeper
}

func (c *Config) keepers(objects *kube.Cluster, db *ovn.Client, join core.Subnet) keepers {
	return keepers{
		outside: external.New(external.Config{World: objects.World(), DB: db, Log: c.Log, Maps: objects.Maps}),
		others: interconnect.New(interconnect.Config{
			World: objects.World(), DB: db, Log: c.Log, Maps: objects.Maps, Join: join.CIDRs,
			Shared: interconnect.Shared{Look: ic.Look, Claim: ic.Claim, Forget: ic.Forget},
		}),
	}
}

func (k keepers) poke() { k.outside.Poke(); k.others.Poke() }

func (k keepers) touched(owner string) { k.outside.Touched(owner); k.others.Touched(owner) }

// states are what metrics tell of the parts.
func (c *Config) states(pending func() (int, bool), blind func() bool, db *ovn.Client, objects *kube.Cluster, self *kube.Identity) states {
	return states{
		version: c.Version, revision: c.Revision, pending: pending, blind: blind,
		connected: func() bool { return db.Connected() == nil },
		listed:    func() bool { return objects.Listed() == nil },
		expiry:    self.Expiry,
	}
}

// leader is what a controller leads with.
type leader struct {
	*Config
	ctl     *controller.Controller
	objects *kube.Cluster
	db      *ovn.Client
	ports   keepers
}

// elected is the part that leads whenever this controller holds the Lease.
func (l leader) elected(to login.Login) func(context.Context) error {
	return func(ctx context.Context) error {
		return kube.Elect(ctx, to.REST, kube.Election{
			Namespace: l.Namespace, Name: l.LeaseName, ID: l.ID, Lease: l.Config.Lease, Reach: l.db.Ping, Log: l.Log, Lead: l.lead,
		})
	}
}

// lead leads until ctx ends or another controller has taken the database. While
// the database is away the leader stays.
func (l leader) lead(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	beside.Go(func() { // it needs no database
		if err := l.objects.TellLater(ctx); err != nil {
			l.Log.Warn("objects of kinds that nobody carries out have no condition that says so", "err", err)
		}
	})
	beside.Go(func() {
		if err := l.ports.outside.Run(ctx); err != nil {
			l.Log.Warn("nobody keeps the external gateway", "err", err)
		}
	})
	beside.Go(func() {
		if err := l.ports.others.Run(ctx); err != nil {
			l.Log.Warn("nobody keeps the interconnection with other clusters", "err", err)
		}
	})
	for ctx.Err() == nil {
		err := l.term(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ovn.ErrFenced):
			l.Log.Warn("another controller has taken the northbound database: this one gives the Lease back", "err", err)
			return
		}
		l.Log.Warn("leading ended; it begins again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(leadAgain):
		}
	}
}

// term leads once, as soon as addresses may be given.
func (l leader) term(ctx context.Context) error {
	if err := awaitAgents(ctx, l.objects.World(), l.Log); err != nil {
		return err
	}
	if err := l.objects.Settle(ctx, l.db); err != nil {
		return err
	}
	return l.ctl.Lead(ctx, l.ID)
}

// reasonBack is the reason of the event about an API server's database that went back.
const reasonBack = "APIWentBack"

// wentBack tells people that objects are what they were at some earlier time.
func (c *Config) wentBack(ctx context.Context, objects *kube.Cluster, count *metrics) func(*health.BackError) {
	return func(back *health.BackError) {
		count.back.Inc()
		err := objects.Warn(ctx, object.Object{Key: object.Key{Kind: object.KindNamespace, Name: c.Namespace}}, object.Event{Reason: reasonBack, Message: back.Error()})
		c.Log.Error("the API server's objects are older than those of before", "err", back, "told", err == nil)
	}
}

// pages are what is served over HTTP. A controller that does not lead
// is ready when it could.
func pages(m *metrics, db *ovn.Client, objects *kube.Cluster) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+agent.PathMetrics, m.handler())
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { httpserve.Probe(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		httpserve.Probe(w, errors.Join(objects.Listed(), db.Ping(r.Context())))
	})
	return mux
}
