package nodeagent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/fairlead/httpserve"
	"github.com/fairlead/fairlead/internal/autoconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/device"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/bridge"
	"github.com/fairlead/fairlead/internal/driver/defroute"
	execdriver "github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/driver/hostlocal"
	"github.com/fairlead/fairlead/internal/driver/macvlan"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/driver/static"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/follow"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/hostfile"
	"github.com/fairlead/fairlead/internal/ipam"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/outsider"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/plan"
	"github.com/fairlead/fairlead/internal/reap"
	"github.com/fairlead/fairlead/internal/record"
	"github.com/fairlead/fairlead/internal/server"
	"github.com/fairlead/fairlead/internal/upkeep"
)

// ovsAnswers is how long a start waits for an OVSDB that is there, so that
// recovery ends before the first request. Without one it serves at once: a node
// may need no switch, and an ADD that does waits for it (package engine).
const ovsAnswers = 500 * time.Millisecond

// apiGrace is how long after the start nobody wonders that the API server's
// objects are not known.
const apiGrace = 5 * time.Second

// errNoPass is why an agent that has just started is not ready.
var errNoPass = errors.New("the gateways were not set yet")

// errAnew is why one is not whose switch came back, or was made anew.
var errAnew = errors.New("gateways and host ports are set again: Open vSwitch is back, or made its devices anew")

// fabric is the switch as the engine sees it.
type fabric struct {
	*ovsdriver.Driver
	*ovs.Client
	began time.Time
}

// switchGrace is how long after the agent's start an ADD waits for the switch. On
// a node that boots, Open vSwitch may come later than the agent: "try again
// later" at once would have the runtime wait far longer before it does.
const switchGrace = 10 * time.Second

// Ready implements engine.Fabric.
func (f fabric) Ready(ctx context.Context) error {
	ctx, stop := context.WithDeadline(ctx, f.began.Add(switchGrace))
	defer stop()
	return f.Client.WaitReady(ctx)
}

// Running implements engine.Fabric.
func (f fabric) Running(ctx context.Context) error {
	if err := f.Client.Ready(); err != nil {
		return err
	}
	return f.Client.Running(ctx)
}

// nodeDaemon is the agent's parts, wired.
type nodeDaemon struct {
	opts    agentOptions
	log     *slog.Logger
	started time.Time

	bridge   *filelock.Lock // nil: of a database elsewhere
	journal  *journal.Journal
	pools    *ipam.Allocator
	objects  objects
	remote   *remote      // the API server that the flags name, or nil
	late     *lateObjects // instead: until a runtime's configuration names one
	ovs      *ovs.Client
	nics     *ovsdriver.Driver
	gateway  *standalone.Gateway
	ports    *hostport.Table
	guard    *nft.Guard
	forget   *forgetter
	engine   *engine.Engine
	multus   *outsider.Teller
	metrics  *metrics.Metrics
	server   *server.Server
	conf     *autoconf.Writer // nil where nobody asked for it
	datapath string
	mtu      int
	reset    chan struct{}           // OVSDB is new or back
	restored chan struct{}           // closed when IPAM knows the journal
	spoilt   chan struct{}           // somebody removed a part of our nftables tables
	gates    atomic.Pointer[outcome] // of the last pass over the gateways
	idle     atomic.Bool             // the built-in Subnet is not served, for nobody is on it
	moved    chan struct{}           // somebody came to it, or went

	repairs     *repairs
	portRepairs *portRepairs
	upkeep      *upkeep.Keeper
}

// newDaemon opens what can fail before anything runs: the journal and the
// folder of objects.
func newDaemon(o agentOptions, log *slog.Logger) (*nodeDaemon, error) {
	d := &nodeDaemon{opts: o, log: log, started: time.Now().UTC(), reset: make(chan struct{}, 1), restored: make(chan struct{}), spoilt: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
	d.gates.Store(&outcome{err: errNoPass})
	boot, err := netns.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	if d.mtu, err = podMTU(o); err != nil {
		return nil, err
	}
	if d.datapath, err = datapath(); err != nil {
		return nil, err
	}
	d.pools = ipam.New()
	if d.objects, err = d.openObjects(); err != nil {
		return nil, err // it says what could not be read
	}
	corrupt := ""
	if d.journal, err = journal.Open(o.stateDir, journal.Options{Log: log, OnCorrupt: func(path string) { corrupt = path }}); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if d.bridge, err = lockBridge(o.ovsdb, o.bridge); err != nil {
		return nil, errors.Join(err, d.journal.Close())
	}
	d.wire(boot)
	if corrupt != "" {
		d.metrics.JournalCorrupt()
	}
	return d, nil
}

// datapath is what the kernel has; loading the module is the kernel's own
// business when the family is asked for.
func datapath() (string, error) {
	has, err := sysfs.HasOpenvswitch()
	if err != nil {
		return "", fmt.Errorf("openvswitch datapath: %w", err)
	}
	if has {
		return "system", nil
	}
	return "netdev", nil
}

// bridgeMAC follows from names, so that it is the same after a loss of OVSDB. It
// is locally administered.
func bridgeMAC(node, bridge string) core.MAC {
	sum := sha256.Sum256([]byte("bridge " + bridge + " of node " + node))
	return core.MAC{0x0a, sum[0], sum[1], sum[2], sum[3], sum[4]}
}

// wire makes the parts; nothing here touches the machine.
func (d *nodeDaemon) wire(boot string) {
	d.ovs = ovs.New(ovs.Config{
		Endpoint: d.opts.ovsdb, Bridge: d.opts.bridge, Datapath: d.datapath, MAC: bridgeMAC(d.opts.nodeName, d.opts.bridge),
		Log: d.log, OnReset: d.onReset, OnTouch: d.onTouch,
	})
	graves := tombstone.New(nil, d.log)
	d.nics = ovsdriver.New(ovsdriver.Config{OVS: d.ovs, UserspaceDatapath: d.datapath == "netdev", Graves: graves, Log: d.log})
	d.gateway = standalone.New(standalone.Config{Ports: d.ovs, Node: d.opts.nodeName, MTU: d.mtu})
	d.metrics = metrics.NewMetrics(metrics.Options{
		Version: d.opts.build.Version, Revision: d.opts.build.Commit,
		Addresses:      d.addresses,
		Orphans:        d.orphans,
		InFlight:       func() int { return d.engine.InFlight() },
		OVSDBConnected: func() bool { return d.ovs.Connected() == nil },
		WritesRefused:  func() bool { api := d.api(); return api != nil && api.Writable() != nil },
		Amiss:          func() int { return len(d.repairs.amiss("")) },
	})
	d.repairs = newRepairs(d.log, d.metrics.DriftRepaired)
	d.portRepairs = newPortRepairs(d)
	d.ports = hostport.New(hostport.Config{Late: true, Log: d.log})
	d.guard = nft.NewGuard(nil, guardTable, ovsdriver.GroupLive)
	notices, conditions := d.notices()
	if s := d.shares(); s != nil {
		d.pools.ShareWith(s)
	}
	d.forget = &forgetter{next: notices, of: d.ports, log: d.log}
	drivers := driver.Set{
		ovsdriver.Name: d.nics, execdriver.Name: execdriver.New(plugins(graves)), defroute.Name: defroute.New(), hostport.Name: d.ports,
	}
	d.upkeep = upkeep.New(upkeep.Config{
		Journal: d.journal, Source: d.objects, Drivers: drivers, BootID: boot, Notices: d.forget, Log: d.log,
		TryLock: func(id string) (func(), bool) { return d.engine.TryLock(id) },
	})
	d.engine = engine.New(engine.Config{
		Journal: d.journal, IPAM: d.pools, Source: d.objects, Gateway: d.gateway,
		Devices: device.New(d.opts.kubeletRoot, published{d.api}), NodePorts: d.opts.ports,
		Fabric:  fabric{d.nics, d.ovs, d.started},
		Drivers: drivers, Tune: d.upkeep.Tune,
		Node:     plan.Node{MTU: d.mtu, BinDirs: d.opts.cniBinDirs, KernelDatapath: d.datapath == "system"},
		ConfDir:  d.opts.confDir,
		Daemon:   d.opts.file,
		BootID:   boot,
		Socket:   d.opts.socket,
		Observer: d.metrics,
		Notices:  arrivals{d.forget, d}, Conditions: conditions,
		Log: d.log,
	})
	d.multus = outsider.New(outsider.Config{
		Journal: d.journal, Source: d.objects, Multus: d.engine.Multus, Daemon: d.opts.file, Files: hostfile.Machine(), ConfDir: d.opts.confDir,
		Driver: execdriver.Name, Log: d.log, Notices: d.forget, Conditions: conditions, Condition: engine.NetworksAttached,
	})
	d.conf = d.confWriter()
	d.server = server.New(server.Config{
		Engine: d.engine, Sockets: append([]string{d.opts.socket}, d.opts.compat...),
		Complete: d.complete, View: d.view(), Metrics: d.metrics.Handler(), Limit: d.opts.file.ConnectionLimit, Shell: d.opts.shell, Log: d.log,
	})
}

// plugins are the well-known CNI plugins that need no process, by their type.
func plugins(graves *tombstone.Reaper) map[string]driver.Plugin {
	return map[string]driver.Plugin{
		bridge.Type:        bridge.New(nil, graves),
		macvlan.Name:       macvlan.New(nil, graves),
		macvlan.NameIpvlan: macvlan.NewIpvlan(nil, graves),
		hostlocal.Name:     hostlocal.New(),
		static.Name:        static.Plugin{},
	}
}

func (d *nodeDaemon) onReset() {
	select {
	case d.reset <- struct{}{}:
	default:
	}
}

// reap ends what plugins leave behind where the agent is a container's first process.
func (d *nodeDaemon) reap(ctx context.Context) {
	if err := reap.Orphans(ctx); err != nil {
		d.log.Warn("orphans of plugins stay as zombies", "err", err)
	}
}

// run serves until ctx ends. Pods keep their networks: nothing is undone.
func (d *nodeDaemon) run(ctx context.Context) error {
	defer d.bridge.Release()
	defer func() { _ = d.journal.Close() }()
	// The sockets come first: an agent that may not have them touches nothing.
	// Until they are served a plugin takes the agent for down, which it is.
	if err := d.server.Listen(); err != nil {
		return err
	}
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, part := range []func(context.Context){boundMemory, d.ovs.Run, d.nics.Run, d.objects.Run, d.ports.Run, d.guardTables(ctx), d.reap} {
		wg.Go(func() { part(parts) })
	}
	d.meetOVS(ctx)
	if err := d.adopt(ctx); err != nil {
		d.log.Error("attachments not recovered yet", "err", err)
	}
	records := d.journal.Records()
	d.restorePorts(ctx, records)
	swept := d.engine.Recover(ctx, records)
	close(d.restored)
	d.forget.recall(d.journal.Released(), records)
	wg.Go(func() { d.engine.Run(parts) })
	wg.Go(func() { newPasses(d, swept).run(parts) })
	wg.Go(func() { d.portRepairs.run(parts) })
	wg.Go(func() { d.follow(parts) })
	if err := d.serveHTTP(parts, &wg); err != nil {
		return err
	}
	if d.conf != nil {
		wg.Go(func() { d.conf.Run(parts) })
	}
	d.log.Info("serving", "version", d.opts.build.Version, "socket", d.opts.socket, "datapath", d.datapath, "mtu", d.mtu)
	d.notify(daemon.SdNotifyReady)
	err := d.server.Run(ctx)
	d.notify(daemon.SdNotifyStopping)
	d.log.Info("stopped; pods keep their networks")
	return err
}

// follow makes running pods' networks those that their annotations ask for: at
// the start and after each change.
func (d *nodeDaemon) follow(ctx context.Context) {
	f := follow.New(follow.Config{Log: d.log, Do: func(ctx context.Context, pod core.Pod) error {
		d.multus.Heed(ctx, pod)
		return d.engine.Replug(ctx, pod)
	}})
	d.objects.WatchPods(f.Changed)
	for _, p := range d.engine.Followed() {
		f.Changed(p)
	}
	f.Run(ctx)
}

// restorePorts makes the node's ports lead to the pods of the journal, before
// any of these is looked at: what is to be undone is closed by its DEL.
func (d *nodeDaemon) restorePorts(ctx context.Context, records []core.Record) {
	var specs []core.Spec
	for _, rec := range record.ByAge(records) {
		specs = append(specs, record.Begun(rec)...)
	}
	if err := d.ports.Restore(ctx, specs); err != nil {
		d.log.Error("host ports not restored yet", "err", err)
	}
}

// adopt completes a new journal with what OVSDB and the kernel still know; the
// passes try again when OVSDB comes.
func (d *nodeDaemon) adopt(ctx context.Context) error {
	if d.journal.Whole() {
		return nil
	}
	specs, err := d.nics.Recover()
	if err == nil {
		err = d.engine.Adopt(ctx, specs)
	}
	if err != nil {
		return fmt.Errorf("recover attachments: %w", err)
	}
	return nil
}

func (d *nodeDaemon) notify(state string) {
	if d.opts.part {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		d.log.Warn("systemd not notified", "err", err)
	}
}

// meetOVS makes the bridge if it is missing and OVSDB answers; what it cannot do
// now the passes do when OVSDB comes.
func (d *nodeDaemon) meetOVS(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, ovsAnswers)
	defer stop()
	select {
	case <-d.reset: // Recover does what is to be done after it
	case <-d.ovs.Absent():
		d.log.Warn("OVSDB is not there yet", "ovsdb", d.opts.ovsdb, "err", d.ovs.Connected())
		return
	case <-ctx.Done():
		d.log.Warn("OVSDB does not answer yet", "ovsdb", d.opts.ovsdb, "err", d.ovs.Connected())
		return
	}
	if err := d.ovs.EnsureBridge(ctx); err != nil {
		d.log.Error("bridge not made", "bridge", d.opts.bridge, "err", err)
		d.onReset() // which has the passes make it
	}
}

// serveHTTP serves metrics and probes on --http, if that is set.
func (d *nodeDaemon) serveHTTP(ctx context.Context, wg *sync.WaitGroup) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+agent.PathMetrics, d.metrics.Handler())
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { probe(w, d.server.Live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		probe(w, d.readyz(r.Context()))
	})
	serve, err := httpserve.Open(ctx, d.opts.http, mux)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	wg.Go(func() {
		if err := serve(); err != nil {
			d.log.Error("http not served any more", "err", err)
		}
	})
	return nil
}

// probe answers a kubelet-style probe: 200 ok, or 503 with the reason.
func probe(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func (d *nodeDaemon) addresses() []ipam.SubnetStats {
	subnets, err := d.objects.Subnets(context.Background())
	if err != nil {
		return nil
	}
	return d.pools.Stats(subnets)
}

func (d *nodeDaemon) orphans() int {
	n := 0
	for _, h := range d.journal.Heads() {
		if h.Orphan {
			n++
		}
	}
	return n
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return h
}
