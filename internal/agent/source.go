package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/internal/agent/declarations"
	"github.com/fairlead/fairlead/internal/agent/deviceplugin"
	"github.com/fairlead/fairlead/internal/agent/elsewhere"
	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/multus/watch"
	"github.com/fairlead/fairlead/internal/network/allocated"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/source/cluster/identity"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/settings"
	"github.com/fairlead/fairlead/internal/source/cluster/vfpolicies"
	"github.com/fairlead/fairlead/internal/source/local"
)

// objects is where the desired state comes from: a folder or a cluster.
type objects interface {
	resolve.Source
	resolve.Declarer
	deviceplugin.Source
	NADs() []resolve.NAD
	Changed() <-chan struct{}
	Problems() []resolve.Problem
	WatchPods(fn func(core.Pod))
	// Redeclared gets a value after what is declared of pods may have changed.
	Redeclared() <-chan struct{}
	Run(ctx context.Context)
}

// openObjects chooses the source. --objects is exclusive; then come --kubeconfig
// or --bootstrap-kubeconfig, then the cluster that the agent runs in; then the
// `kubeconfig` of the first configuration that a runtime sends.
func (d *Daemon) openObjects() (objects, error) {
	switch {
	case d.opts.clustered():
		d.remote = d.newRemote(d.opts.Kubeconfig)
		return d.remote, nil
	case d.opts.Alone():
		return d.openMachine()
	case d.opts.Folder != nil:
		return local.Over(d.opts.Folder, d.log)
	case d.opts.Objects != "":
		return local.Open(d.opts.Objects, d.log)
	}
	builtin, err := local.Open("", d.log)
	if err != nil {
		return nil, err
	}
	d.late = &lateObjects{open: d.newRemote, log: d.log, changed: make(chan struct{}, 1), retold: make(chan struct{}, 1), named: make(chan struct{})}
	d.late.now.Store(&serving{objects: builtin})
	return d.late, nil
}

// newRemote makes a source of an API server and what is written there.
func (d *Daemon) newRemote(kubeconfig string) *remote {
	login.LogTo(d.log)
	src := cluster.New(cluster.Config{
		Kubeconfig: kubeconfig, Node: d.opts.NodeName, UserAgent: "fairlead/" + d.opts.Build.Version,
		Bootstrap: d.opts.Bootstrap, CertDir: d.opts.CertDir, CertDuration: d.opts.CertDuration,
		Requested: func(method string, status int) { d.metrics.APIRequest(method, status) },
		Shell:     d.opts.Shell,
		Log:       d.log,
	})
	held := d.pools.Held
	if d.opts.OVN {
		held = src.Strays(d.pools.LeasesOf)
	}
	r := &remote{
		Source: src, Shares: cluster.NewShares(src, held, d.opts.OVN),
		recovered: d.restored, namespace: d.opts.Chassis.Namespace, log: d.log,
	}
	r.settings = settings.New(settings.Config{
		Login: src.Logins.Current, Namespaces: d.opts.PodNetworkNamespaces, Common: d.opts.Chassis.Namespace, Optional: d.late != nil,
		File: filepath.Join(d.opts.StateDir, "declared.json"), Log: d.log,
	})
	r.Keeper = declarations.New(cluster.NewPublisher(src, d.held, filepath.Join(d.opts.StateDir, "conditions.json")), declarations.Config{
		Node: d.opts.NodeName, Pods: src, Settings: r.settings, Heads: func() []journal.Head { return d.journal.Heads() }, Log: d.log,
		Explain: func(ctx context.Context, p core.Pod) (resolve.Explained, error) { return d.engine.Explain(ctx, p) },
	})
	r.Follower = vfpolicies.New(vfpolicies.Config{Login: src.Logins.Current, Node: d.opts.NodeName, Changed: func() { d.vfs.Poke() }, Log: d.log})
	r.identity = d.newIdentity(r)
	return r
}

// held is what is told of a pod, by the journal. It decodes no record: a pod is
// asked for several times in its ADD, and at each change of its status later.
func (d *Daemon) held(p core.Pod) []cluster.Held {
	var out []cluster.Held
	for _, h := range d.journal.PodHeads(p) {
		if h.Phase == core.Added && !h.Orphan {
			out = append(out, cluster.Held{Container: h.Key.Container, UID: h.Pod.UID, Called: h.Called, Nets: h.Statuses})
		}
	}
	return out
}

// api is the API server that is in use, nil for none.
func (d *Daemon) api() *remote {
	if d.late != nil {
		return d.late.remote.Load()
	}
	return d.remote
}

// cluster is api as the keeper of leases wants it.
func (d *Daemon) cluster() leases.Cluster {
	if api := d.api(); api != nil {
		return api
	}
	return nil
}

// notices hears what is told to the cluster, nil where there is none.
func (d *Daemon) notices() (core.Notices, watch.Conditions) {
	switch {
	case d.late != nil:
		return d.late, d.late
	case d.remote != nil:
		return d.remote, d.remote
	case d.machine != nil:
		return departures{d}, nil
	}
	return nil, nil
}

// complete sees each configuration that a runtime sends before it is used.
func (d *Daemon) complete(c core.Conf) core.Conf {
	if d.late != nil {
		d.late.use(c.Kubeconfig)
	}
	return c
}

// glance is the source for an operator's questions, which are answered from
// memory: nobody waits for a pod that may come.
type glance struct {
	resolve.Source
	api func() *remote
}

// Pod implements resolve.Source.
func (g glance) Pod(ctx context.Context, p core.Pod) (*resolve.Pod, error) {
	if r := g.api(); r != nil {
		return r.Known(p)
	}
	return g.Source.Pod(ctx, p)
}

// published asks the API server that is in use what DRA drivers say of devices;
// without one nobody says anything.
type published struct{ api func() *remote }

// Attribute implements device.Slices.
func (p published) Attribute(ctx context.Context, driver, pool, device, name string) (string, error) {
	if r := p.api(); r != nil {
		return r.Attribute(ctx, driver, pool, device, name)
	}
	return "", core.ErrNotFound
}

// Both must be able to say at once which NADs they know: a default network that
// a file describes would wait for one at every ADD otherwise.
var _, _ resolve.Prompt = (*remote)(nil), (*lateObjects)(nil)

// remote is an API server: what it says and what it is told.
type remote struct {
	*cluster.Source
	*declarations.Keeper
	*vfpolicies.Follower
	cluster.Shares
	settings  *settings.Source
	recovered <-chan struct{}  // closed when IPAM knows the journal
	identity  *identity.Keeper // of the chassis; nil where nobody asks for it
	namespace string           // Fairlead's own
	log       *slog.Logger
}

// Why implements allocated.Teller: that no controller answers. One that does has written
// on the pod what is wrong.
func (r *remote) Why(ctx context.Context, _ core.Pod) string {
	said, err := elsewhere.Leaderless(ctx, r.Logins.Current, r.namespace)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("who leads is not known", "err", err)
	}
	return said
}

// Run implements objects.
func (r *remote) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.Publisher.Run(ctx) })
	wg.Go(func() { r.settings.Run(ctx) })
	wg.Go(func() { r.Follower.Run(ctx) })
	if r.identity != nil {
		wg.Go(func() { r.identity.Run(ctx) })
	}
	wg.Go(func() {
		select {
		case <-r.recovered:
			wg.Go(func() { r.Keep(ctx) })
			r.Shares.Run(ctx)
		case <-ctx.Done():
		}
	})
	r.Source.Run(ctx)
}

// Detached implements core.Notices.
func (r *remote) Detached(rec core.Record) {
	r.Keeper.Detached(rec)
	r.Released()
}

// Problems implements objects.
func (r *remote) Problems() []resolve.Problem {
	return slices.Concat(r.Source.Problems(), r.Publisher.Problems(), r.settings.Problems(), resolve.SharedWires(r.NADs()))
}

// Declared implements resolve.Declarer.
func (r *remote) Declared(ctx context.Context) (*declared.Index, error) {
	return r.settings.Declared(ctx)
}

// Redeclared implements objects.
func (r *remote) Redeclared() <-chan struct{} { return r.settings.Redeclared() }

// shares are the node's part in the Subnets of its cluster, nil where there is
// none.
func (d *Daemon) shares() ipam.Shares {
	switch {
	case d.late != nil:
		return d.late
	case d.remote != nil:
		return d.remote
	}
	return nil
}

// Share implements ipam.Shares.
func (l *lateObjects) Share(ctx context.Context, s core.Subnet) ([]netip.Prefix, func(), error) {
	if r := l.remote.Load(); r != nil {
		return r.Share(ctx, s)
	}
	return nil, func() {}, nil
}

// Barred implements ipam.Shares.
func (l *lateObjects) Barred(s core.Subnet) error {
	if r := l.remote.Load(); r != nil {
		return r.Barred(s)
	}
	return nil
}

// serving is a source that may be replaced.
type serving struct{ objects }

// lateObjects is the built-in default network until a runtime's configuration
// names an API server, which serves from then on.
type lateObjects struct {
	open    func(kubeconfig string) *remote
	log     *slog.Logger
	now     atomic.Pointer[serving]
	remote  atomic.Pointer[remote]
	changed chan struct{}
	retold  chan struct{}
	named   chan struct{} // closed when remote is set

	mu       sync.Mutex // guards watchers, and that remote hears of all of them
	watchers []func(core.Pod)
}

// use takes the first kubeconfig that is named.
func (l *lateObjects) use(kubeconfig string) {
	if kubeconfig == "" || l.remote.Load() != nil {
		return
	}
	r := l.open(kubeconfig)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.remote.CompareAndSwap(nil, r) {
		return
	}
	for _, fn := range l.watchers {
		r.WatchPods(fn)
	}
	l.log.Info("API server found in the runtime's configuration: pods and networks are read from it", "kubeconfig", kubeconfig)
	l.now.Store(&serving{r})
	close(l.named)
}

// Attached implements core.Notices.
func (l *lateObjects) Attached(rec core.Record) {
	if r := l.remote.Load(); r != nil {
		r.Attached(rec)
	}
}

// Detached implements core.Notices.
func (l *lateObjects) Detached(rec core.Record) {
	if r := l.remote.Load(); r != nil {
		r.Detached(rec)
	}
}

// Failed implements core.Notices.
func (l *lateObjects) Failed(a core.Attempt) {
	if r := l.remote.Load(); r != nil {
		r.Failed(a)
	}
}

// Condition implements core.Conditions.
func (l *lateObjects) Condition(pod core.Pod, kind, status, reason, message string) {
	if r := l.remote.Load(); r != nil {
		r.Condition(pod, kind, status, reason, message)
	}
}

// Told implements watch.Conditions.
func (l *lateObjects) Told(pod core.Pod, kind string) string {
	if r := l.remote.Load(); r != nil {
		return r.Told(pod, kind)
	}
	return ""
}

// WatchPods implements objects.
func (l *lateObjects) WatchPods(fn func(core.Pod)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, fn)
	if r := l.remote.Load(); r != nil {
		r.WatchPods(fn)
	}
}

// Run implements objects.
func (l *lateObjects) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-l.named:
	}
	r := l.remote.Load()
	go forward(ctx, r.Changed(), l.changed)
	go forward(ctx, r.Redeclared(), l.retold)
	r.Run(ctx)
}

// forward hands on that there is news until ctx ends.
func forward(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			select {
			case to <- struct{}{}:
			default:
			}
		}
	}
}

// Redeclared implements objects.
func (l *lateObjects) Redeclared() <-chan struct{} { return l.retold }

// Changed implements objects.
func (l *lateObjects) Changed() <-chan struct{} { return l.changed }

// Pod implements resolve.Source.
func (l *lateObjects) Pod(ctx context.Context, p core.Pod) (*resolve.Pod, error) {
	return l.now.Load().Pod(ctx, p)
}

// NAD implements resolve.Source.
func (l *lateObjects) NAD(ctx context.Context, namespace, name string) (*resolve.NAD, error) {
	return l.now.Load().NAD(ctx, namespace, name)
}

// KnownPod implements resolve.Prompt.
func (l *lateObjects) KnownPod(ctx context.Context, pod core.Pod) (*resolve.Pod, error) {
	if p, ok := l.now.Load().objects.(resolve.Prompt); ok {
		return p.KnownPod(ctx, pod)
	}
	return l.Pod(ctx, pod) // a folder has nobody wait
}

// KnownNAD implements resolve.Prompt.
func (l *lateObjects) KnownNAD(namespace, name string) (*resolve.NAD, error) {
	if p, ok := l.now.Load().objects.(resolve.Prompt); ok {
		return p.KnownNAD(namespace, name)
	}
	return nil, core.ErrNotFound // a folder has nobody wait: NAD says the rest
}

// Subnets implements resolve.Source.
func (l *lateObjects) Subnets(ctx context.Context) ([]core.Subnet, error) {
	return l.now.Load().Subnets(ctx)
}

// Declared implements resolve.Declarer.
func (l *lateObjects) Declared(ctx context.Context) (*declared.Index, error) {
	return l.now.Load().Declared(ctx)
}

// VFPolicies implements deviceplugin.Source.
func (l *lateObjects) VFPolicies() ([]vfpolicy.Policy, error) { return l.now.Load().VFPolicies() }

// NADs implements objects.
func (l *lateObjects) NADs() []resolve.NAD { return l.now.Load().NADs() }

// Problems implements objects.
func (l *lateObjects) Problems() []resolve.Problem { return l.now.Load().Problems() }

var (
	_ allocated.Follower = (*remote)(nil)
	_ allocated.Teller   = (*remote)(nil)
)
