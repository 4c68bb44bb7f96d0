package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/deviceplugin"
	"github.com/fairlead/fairlead/internal/agent/elsewhere"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/agent/fence"
	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/agent/metrics"
	"github.com/fairlead/fairlead/internal/agent/nicstats"
	"github.com/fairlead/fairlead/internal/agent/packetfilter"
	"github.com/fairlead/fairlead/internal/agent/probes"
	"github.com/fairlead/fairlead/internal/agent/server"
	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/agent/uplink"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/bridge"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostdevice"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	"github.com/fairlead/fairlead/internal/driver/builtin/macvlan"
	"github.com/fairlead/fairlead/internal/driver/builtin/sriov"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/driver/builtin/vlanparent"
	"github.com/fairlead/fairlead/internal/driver/builtin/whereabouts"
	"github.com/fairlead/fairlead/internal/driver/defroute"
	execdriver "github.com/fairlead/fairlead/internal/driver/exec"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/install/conf"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	vfs "github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
	"github.com/fairlead/fairlead/internal/lib/filelock"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/lib/httpserve"
	"github.com/fairlead/fairlead/internal/lib/reap"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/multus/watch"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/openflow"
	"github.com/fairlead/fairlead/internal/source/device"
	"github.com/fairlead/fairlead/internal/source/local"
)

// ovsAnswers is how long a start waits for an OVSDB that is there, so that
// recovery ends before the first request. Without one it serves at once: a node
// may need no switch, and an ADD that does waits for it (package engine).
const ovsAnswers = 500 * time.Millisecond

// apiGrace is how long after the start nobody wonders that the API server's
// objects are not known.
const apiGrace = 5 * time.Second

// Running pods whose networks are changed: how many at a time, and the pauses
// after failures, the longest but for a quarter.
const (
	replugs     = 4
	firstReplug = time.Second
	mostReplug  = 2 * time.Minute
)

// errNoPass is why an agent that has just started is not ready.
var errNoPass = errors.New("the gateways were not set yet")

// errAnew is why one is not whose switch came back, or was made anew.
var errAnew = errors.New("gateways and host ports are set again: Open vSwitch is back, or made its devices anew")

// switchGrace is how long after the agent's start an ADD waits for the switch. On
// a node that boots, Open vSwitch may come later than the agent: "try again
// later" at once would have the runtime wait far longer before it does.
const switchGrace = 10 * time.Second

// Daemon is the agent's parts, wired.
type Daemon struct {
	opts    Config
	log     *slog.Logger
	started time.Time

	delays   func() error   // is nil where the kernel has netem
	bridge   *filelock.Lock // nil: of a database elsewhere
	journal  *journal.Journal
	pools    *ipam.Allocator
	objects  objects
	remote   *remote        // the API server that the flags name, or nil
	machine  *local.Machine // or a folder with OVN and a controller of our own, or nil
	late     *lateObjects   // instead: until a runtime's configuration names one
	ovs      *ovs.Client
	nics     *ovsdriver.Driver
	gateway  *standalone.Gateway
	ports    *hostport.Table
	guard    *nft.Guard
	forget   *packetfilter.Forgetter
	pods     *packetfilter.Pods
	engine   *engine.Engine
	leases   *leases.Keeper
	fence    *fence.Guard
	multus   *watch.Teller
	metrics  *metrics.Metrics
	server   *server.Server
	conf     *conf.Writer // nil where nobody asked for it
	datapath string
	mtu      atomic.Int64            // of pods, in bytes
	unfound  bool                    // the underlay interface, at the start
	reset    chan struct{}           // OVSDB is new or back
	restored chan struct{}           // closed when IPAM knows the journal
	spoilt   chan struct{}           // somebody removed a part of our nftables tables
	gates    atomic.Pointer[outcome] // of the last pass over the gateways
	unserved []core.Subnet           // by the pass under way, whose own this is
	idle     atomic.Bool             // the built-in Subnet is not served, for nobody is on it
	moved    chan struct{}           // somebody came to it, or went
	lacks    packetfilter.Lacks      // what the node does not do for Subnets, as told last

	repairs     *repairs
	portRepairs *portRepairs
	flows       *openflow.Client // nil: ovn-controller makes the flows
	reach       *reach           // nil without OVN
	chassis     *chassis.Keeper  // nil without OVN
	upkeep      *upkeep.Keeper
	uplinks     *uplink.Node
	probes      *probes.Keeper // nil without --enable-tproxy
	vfs         *deviceplugin.Manager
}

// New opens what can fail before anything runs: the journal and the folder of
// objects. Errors are those of package journal, or say what could not be read.
func New(o Config) (*Daemon, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	log := o.Log
	d := &Daemon{opts: o, log: log, started: time.Now(), reset: make(chan struct{}, 1), restored: make(chan struct{}), spoilt: make(chan struct{}, 1), moved: make(chan struct{}, 1), lacks: packetfilter.Lacks{Node: o.NodeName, Log: log}}
	d.gates.Store(&outcome{err: errNoPass})
	boot, err := netns.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	if d.datapath, err = datapath(); err != nil {
		return nil, err
	}
	d.pools = ipam.New()
	if d.objects, err = d.openObjects(); err != nil {
		return nil, err // it says what could not be read
	}
	corrupt := ""
	if d.journal, err = journal.Open(o.StateDir, journal.Options{Log: log, OnCorrupt: func(path string) { corrupt = path }}); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if d.bridge, err = ovs.LockBridge(o.OVSDB, o.Bridge); err != nil {
		return nil, errors.Join(err, d.journal.Close())
	}
	if err := d.ofSwitch(boot); err != nil {
		d.bridge.Release()
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

// ofSwitch makes the parts that work on the switch: uplinks, and what keeps pods apart on
// one of ours, or what makes the node one of OVN's and tells whether that works. An error is
// of flags that cannot be met.
func (d *Daemon) ofSwitch(boot string) error {
	d.ovs = ovs.New(ovs.Config{
		Endpoint: d.opts.OVSDB, Bridge: d.opts.Bridge, Datapath: d.datapath, MAC: bridgeMAC(d.opts.NodeName, d.opts.Bridge),
		OVN: d.opts.OVN, MirrorAll: d.opts.MirrorAll.Said(), Log: d.log, OnReset: d.onReset, OnTouch: d.onTouch, OnIDs: d.onIDs, OnMirror: d.move,
	})
	warn := func(reason, note string) {
		if api := d.api(); api != nil {
			api.WarnNode(reason, note)
		}
	}
	d.uplinks = uplink.NewNode(uplink.Parts{Node: d.opts.NodeName, BootID: boot, Datapath: d.datapath, Switch: d.ovs, Journal: d.journal, Objects: d.objects, Used: d.ways, OVN: d.opts.OVN, Login: d.login, Warn: warn, Changed: d.onIDs, Log: d.log})
	d.delays = upkeep.Delays(d.opts.Netem, d.log)
	d.probes = d.newProbes()
	mtu, err := d.podMTU()
	d.mtu.Store(int64(mtu))
	if !d.opts.OVN {
		d.flows = openflow.New(openflow.SocketOf(d.opts.OVSDB, d.opts.Bridge))
		return err
	}
	d.reach = newReach(d)
	d.chassis = d.newChassis()
	return err
}

// wire makes the other parts; nothing here touches the machine.
func (d *Daemon) wire(boot string) {
	reaper := tombstone.New(nil, d.log)
	d.nics = ovsdriver.New(ovsdriver.Config{OVS: d.ovs, Flows: d.flows, UserspaceDatapath: d.datapath == "netdev", Conflict: d.conflict, Delays: d.delays, Reaper: reaper, Patience: d.started.Add(switchGrace), Log: d.log})
	d.gateway = standalone.New(standalone.Config{Ports: d.ovs, Filter: d.opts.Filter.Filter(), Node: d.opts.NodeName, MTU: int(d.mtu.Load()), Held: d.pools.Held})
	d.metrics = metrics.NewMetrics(metrics.Options{
		Version: d.opts.Build.Version, Revision: d.opts.Build.Commit,
		Addresses:      d.addresses,
		Orphans:        d.orphans,
		Fence:          func() (bool, int) { return d.fence.Count() },
		InFlight:       func() int { return d.engine.InFlight() },
		OVSDBConnected: func() bool { return d.ovs.Connected() == nil },
		WritesRefused:  func() bool { api := d.api(); return api != nil && api.Writable() != nil },
		Unrepaired:     func() int { return len(d.repairs.unrepaired("")) },
		Unavailable:    d.unavailable(), Traffic: d.traffic, Probes: d.probed(),
		NICs: nicstats.Of(d.opts.PodMetrics, nicstats.Reader{Heads: d.journal.Heads, Log: d.log}),
	})
	d.repairs = newRepairs(d.log, d.metrics.DriftRepaired)
	d.portRepairs = newPortRepairs(d)
	d.ports = hostport.New(hostport.Config{Late: true, Log: d.log})
	d.guard = nft.NewGuard(nil, guardTable, ovsdriver.GroupLive)
	notices, conditions := d.notices()
	if s := d.shares(); s != nil {
		d.pools.ShareWith(s)
	}
	d.forget = &packetfilter.Forgetter{Next: notices, Of: d.ports, Log: d.log}
	d.pods = packetfilter.NewPods(arrivals{d.forget, d}, d.gateway.Pods, d.log)
	kubelet, vf := device.New(d.opts.KubeletRoot, published{d.api}), sriov.New(sriov.Dir)
	d.vfs = d.devicePlugin(kubelet, vf)
	drivers := driver.Set{
		core.DriverOVS: d.nics, core.DriverExec: execdriver.New(plugins(reaper, vf)), core.DriverDefroute: defroute.New(), core.DriverHostport: d.ports,
	}
	d.wireLeases(boot, drivers)
	d.upkeep = upkeep.New(upkeep.Config{
		Journal: d.journal, Source: d.objects, Declared: d.objects, PFOf: vfs.At("").PFOf, Promises: d.vfs, Drivers: drivers, Leases: d.leases, BootID: boot, Notices: d.forget, Log: d.log,
		TryLock: func(id string) (func(), bool) { return d.engine.TryLock(id) },
	})
	d.engine = engine.New(engine.Config{
		Journal: d.journal, IPAM: d.pools, Source: d.objects, Declared: d.objects, Leases: d.leases, Fence: d.fence, Gateway: d.gateway,
		Devices: deviceplugin.Devices{Kubelet: kubelet, Manager: d.vfs}, PFOf: vfs.At("").PFOf, NodePorts: d.opts.HostPorts, OVN: d.opts.OVN, Alone: d.machine != nil,
		Drivers: drivers, Tune: d.upkeep.Tune,
		Node:    plan.Node{BinDirs: d.opts.CNIBinDirs, NetworkMTU: elsewhere.NetworkMTU(d.note)},
		MTU:     func() int { return int(d.mtu.Load()) },
		ConfDir: d.opts.ConfDir, Daemon: d.opts.File, BootID: boot, Socket: d.opts.Socket,
		Observer: d.metrics,
		Notices:  d.pods, Conditions: conditions,
		Log: d.log,
	})
	d.multus = watch.New(watch.Config{
		Journal: d.journal, Source: d.objects, Multus: d.engine.Multus, Daemon: d.opts.File, Files: hostfile.Machine(), ConfDir: d.opts.ConfDir,
		Log: d.log, Notices: d.forget, Conditions: conditions, Condition: engine.NetworksAttached,
	})
	d.conf = d.confWriter()
	d.server = server.New(server.Config{
		Engine: d.engine, Sockets: append([]string{d.opts.Socket}, d.opts.CompatSockets...),
		Complete: d.complete, View: d.view(), Metrics: d.metrics.Handler(), Limit: d.opts.File.ConnectionLimit, Shell: d.opts.Shell, Log: d.log,
	})
}

func (d *Daemon) devicePlugin(kubelet *device.Kubelet, vf *sriov.Plugin) *deviceplugin.Manager {
	return deviceplugin.For(deviceplugin.Node{
		Flags: d.opts.VFs, Name: d.opts.NodeName, KubeletRoot: d.opts.KubeletRoot, Kubelet: kubelet, Journal: d.journal, Cleaner: vf, Source: d.objects, Log: d.log,
		Report: func(all []deviceplugin.Report) {
			if api := d.api(); api != nil {
				api.ReportVFs(all)
			}
		},
		TryLock: func(id string) (func(), bool) { return d.engine.TryLock(id) },
	})
}

// plugins are the well-known CNI plugins that need no process, by their type.
func plugins(reaper *tombstone.Reaper, vf *sriov.Plugin) map[string]driver.Plugin {
	vlans := vlanparent.New(vlanparent.Dir)
	return map[string]driver.Plugin{
		bridge.Type:        bridge.New(nil, reaper),
		macvlan.Name:       macvlan.New(nil, reaper, vlans),
		macvlan.NameIpvlan: macvlan.NewIpvlan(nil, reaper, vlans),
		macvlan.NameVLAN:   macvlan.NewVLAN(nil, reaper),
		hostdevice.Name:    hostdevice.New(nil, hostdevice.Dir),
		hostlocal.Name:     hostlocal.New(),
		static.Name:        static.Plugin{},
		sriov.Name:         vf,
		whereabouts.Name:   whereabouts.Plugin{},
	}
}

func (d *Daemon) onReset() {
	d.uplinks.Poke()
	select {
	case d.reset <- struct{}{}:
	default:
	}
}

// reap ends what plugins leave behind where the agent is a container's first process.
func (d *Daemon) reap(ctx context.Context) {
	if err := reap.Orphans(ctx); err != nil {
		d.log.Warn("orphans of plugins stay as zombies", "err", err)
	}
}

// Run serves until ctx ends. Pods keep their networks: nothing is undone. It sets
// how the Go runtime of this process collects garbage.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.bridge.Release()
	defer func() { _ = d.journal.Close() }()
	d.settle()
	if err := d.open(); err != nil {
		return err
	}
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, part := range []func(context.Context){metrics.BoundMemory, d.ovs.Run, d.nics.Run, d.objects.Run, d.vfs.Run, d.ports.Run, d.guardTables(ctx), d.reap} {
		wg.Go(func() { part(parts) })
	}
	d.meetOVS(ctx)
	d.uplinks.Resume(ctx)
	if err := d.engine.Adopt(ctx); err != nil {
		d.log.Error("attachments not read back from the drivers: the agent knows those of its journal only", "err", err)
	}
	records := d.journal.Records()
	d.recall(records)
	d.leases.Restore(records)
	swept := d.engine.Recover(ctx, records)
	d.recalled(records)
	close(d.restored)
	d.forget.Recall(d.journal.Released(), records)
	for _, part := range []func(context.Context){d.engine.Run, d.leases.Run, d.fence.Run, newPasses(d, swept).run, d.portRepairs.run, d.pods.Run} {
		wg.Go(func() { part(parts) })
	}
	wg.Go(func() { d.probes.Run(parts) })
	wg.Go(func() { d.uplinks.Run(parts) })
	wg.Go(func() { d.seekUnderlay(parts) })
	if d.flows != nil { // they went with ovs-vswitchd, whatever the database says
		wg.Go(func() { d.flows.Follow(parts, func() { d.portRepairs.touch(every) }, func() {}) })
	}
	if d.reach != nil {
		wg.Go(func() { d.reach.run(parts) })
		wg.Go(func() { d.chassis.Run(parts) })
		wg.Go(func() { d.neighbours(parts) })
		bridge := openflow.New(openflow.SocketOf(d.opts.OVSDB, d.opts.Bridge))
		wg.Go(func() { bridge.Follow(parts, func() {}, d.chassis.Bare) })
	}
	wg.Go(func() { d.follow(parts) })
	wg.Go(func() { d.control(parts) })
	if err := d.serveHTTP(parts, &wg); err != nil {
		return err
	}
	if d.conf != nil {
		wg.Go(func() { d.conf.Run(parts) })
	}
	d.log.Info("serving", "version", d.opts.Build.Version, "socket", d.opts.Socket, "datapath", d.datapath, "mtu", d.mtu.Load())
	d.notify(daemon.SdNotifyReady)
	err := d.server.Run(ctx)
	d.notify(daemon.SdNotifyStopping)
	d.log.Info("stopped; pods keep their networks")
	return err
}

// open takes the sockets, and then off the network what others may have had since the last
// agent ended. The sockets come first: an agent that may not have them touches nothing.
// Until they are served a plugin takes the agent for down, which it is.
func (d *Daemon) open() error {
	if err := d.server.Listen(); err != nil {
		return err
	}
	d.fence.Enforce()
	return nil
}

// settle prepares the process and says what of the configuration has no effect.
func (d *Daemon) settle() {
	debug.SetGCPercent(metrics.GCPercent)
	if d.opts.InCluster {
		if err := sysfs.OpenSysctls(); err != nil {
			d.log.Warn("/proc/sys not writable: sysctls of the node stay as they are", "err", err)
		}
	}
	for flag, why := range d.opts.Chassis.Idle(d.opts.OVN) {
		d.log.Warn("flag without effect", "flag", flag, "because", why)
	}
	if d.opts.Filter.Probes && d.probes == nil {
		d.log.Warn("flag without effect", "flag", "enable-tproxy", "because", "Vpcs and probes are of a cluster with --ovn")
	}
	for _, key := range d.opts.File.Unknown {
		d.log.Warn("key of the configuration file means nothing here", "file", d.opts.ConfigFile, "key", key)
	}
	if d.opts.Police != nil {
		d.policed(d.opts.Police())
	}
}

// follow makes running pods' networks those that their annotations ask for, and gives
// them what is declared of them: at the start and after each change.
func (d *Daemon) follow(ctx context.Context) {
	pods := retry.NewQueue[core.Pod](firstReplug, mostReplug)
	changed := func(p core.Pod) {
		p.UID = "" // what is done is done for whoever has the name
		pods.Add(p)
	}
	d.objects.WatchPods(changed)
	all := func() {
		for _, p := range d.engine.Followed() {
			changed(p)
		}
	}
	all()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.objects.Redeclared():
				all()
			}
		}
	}()
	pods.Run(ctx, replugs, func(ctx context.Context, p core.Pod) error {
		d.multus.PodChanged(ctx, p)
		err := d.engine.Replug(ctx, p)
		if err != nil {
			d.log.Warn("networks of a running pod are not as asked for yet; tried again", "pod", p, "err", err)
		}
		return err
	})
}

func (d *Daemon) notify(state string) {
	if d.opts.Part {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		d.log.Warn("systemd not notified", "err", err)
	}
}

// meetOVS makes the bridge if it is missing and OVSDB answers; what it cannot do
// now the passes do when OVSDB comes.
func (d *Daemon) meetOVS(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, ovsAnswers)
	defer stop()
	select {
	case <-d.reset: // Recover does what is to be done after it
	case <-d.ovs.Absent():
		d.log.Warn("OVSDB is not there yet", "ovsdb", d.opts.OVSDB, "err", d.ovs.Connected())
		return
	case <-ctx.Done():
		d.log.Warn("OVSDB does not answer yet", "ovsdb", d.opts.OVSDB, "err", d.ovs.Connected())
		return
	}
	if err := d.ovs.EnsureBridge(ctx); err != nil {
		d.log.Error("bridge not made yet: pods wait for it", "bridge", d.opts.Bridge, "err", err)
		d.onReset() // which has the passes make it
	}
}

// serveHTTP serves metrics and probes on --http, if that is set.
func (d *Daemon) serveHTTP(ctx context.Context, wg *sync.WaitGroup) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+agent.PathMetrics, d.metrics.Handler())
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { httpserve.Probe(w, d.server.Live()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		httpserve.Probe(w, d.readyz(r.Context()))
	})
	serve, err := httpserve.Open(ctx, d.opts.HTTP, mux)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	wg.Go(func() {
		if err := serve(); err != nil {
			d.log.Error("metrics and probes not served any more; pods are", "http", d.opts.HTTP, "err", err)
		}
	})
	return nil
}

func (d *Daemon) addresses() []ipam.SubnetStats {
	subnets, err := d.objects.Subnets(context.Background()) //nolint:forbidigo // a collector is given none, and sources answer from memory
	if err != nil {
		return nil
	}
	return d.pools.Stats(subnets)
}

func (d *Daemon) traffic() []metrics.Traffic {
	out, err := packetfilter.Traffic(context.Background(), d.opts.NodeName, d.gateway) //nolint:forbidigo // a collector is given none
	if err != nil {
		d.log.Warn("counters of the packet filter not read", "err", err)
	}
	return out
}

func (d *Daemon) orphans() int {
	n := 0
	for _, h := range d.journal.Heads() {
		if h.Orphan {
			n++
		}
	}
	return n
}
