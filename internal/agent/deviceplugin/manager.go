// Package deviceplugin gives kubelet the virtual functions of the node's cards, as
// NodeVFPolicies or a file say: it makes them, tells which are healthy, and chooses the one
// that a pod gets where kubelet knows places only. While there is no policy it does
// nothing. It knows no pod's networks; who has a function it is told.
package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	pb "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/filewatch"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/device"
)

// look is how often the cards are looked at while there are policies: the kernel tells
// nobody that a driver was taken away.
const look = 2 * time.Second

const (
	cleanLimit = 20 * time.Second // for all that one look finds: an ADD or DEL may have one in hand
	cleanAgain = 30 * time.Second // after a failure: its driver is bound anew each time
)

// Config is what a Manager is made of.
type Config struct {
	// Dir is kubelet's folder of device plugins.
	Dir string
	// Kubelet tells which pods it gave devices.
	Kubelet interface {
		Given(ctx context.Context) ([]device.Given, error)
	}
	Sys sriov.Sys
	// Attrs are those that a card has of a function; nil: sriov.Read.
	Attrs func(sriov.VF) (sriov.Attrs, error)
	// Policies are those that mean this node; core.ErrUnavailable while they are not known.
	Policies func() ([]vfpolicy.Policy, error)
	// Report hears what became of each policy, after each change of it. It does not block.
	Report func([]vfpolicy.Report)
	// Cleaner is who takes functions back from pods.
	Cleaner Cleaner
	// Held are the functions, by address, of the attachments that are recorded.
	Held func() map[string]core.Key
	// Pod is the one of an attachment. Living gives what tells, as things are now, that an
	// attachment may go on: it is recorded, and no orphan, or somebody works on it.
	Pod    func(core.Key) core.Pod
	Living func() func(core.Key) bool
	// Book is a file for what was chosen; it ends with the machine.
	Book string
	// InfoDir is the folder of device information files, CDIDir that of CDI's
	// specifications, "" where pods get device nodes without.
	InfoDir, CDIDir string
	Log             *slog.Logger
}

// Cleaner knows the functions that a plugin inside the agent has given away.
type Cleaner interface {
	// Marked are those that pods have, or that wait to be cleaned, by address.
	Marked() (map[string]core.Key, error)
	// Clean makes one of them what it was, if it is still marked for that attachment.
	Clean(ctx context.Context, pci string, of core.Key) error
}

// Manager is the node's device plugin: a server for each resource. Make it with New.
type Manager struct {
	cfg  Config
	poke chan struct{}
	// Of Run alone.
	endpoints map[string]*endpoint
	said      string               // why policies are not known
	tried     map[string]time.Time // functions that could not be cleaned, by address

	mu       sync.Mutex // guards what follows
	known    bool       // policies were read once
	seen     state
	unclean  map[string]string // why a function could not be cleaned, by its address
	driven   map[string]string // driver by address, to which a function was bound once
	book     map[string]grant  // by attachment
	read     bool              // the book was
	reported []vfpolicy.Report
}

// state is what the last look showed.
type state struct {
	alive func(core.Key) bool
	cards []vfpolicy.PF
	plan  vfpolicy.Plan
	given map[string]owner  // by address
	sick  map[string]string // why a function is not healthy, by its address
	amiss map[string][]string
}

// New makes a Manager; Run has it work.
func New(c Config) *Manager {
	if c.Attrs == nil {
		c.Attrs = sriov.Read
	}
	return &Manager{
		cfg: c, poke: make(chan struct{}, 1), endpoints: map[string]*endpoint{}, tried: map[string]time.Time{}, unclean: map[string]string{}, driven: map[string]string{}, book: map[string]grant{},
	}
}

// Poke says that policies have changed.
func (m *Manager) Poke() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Run serves until ctx ends. Pods keep what they have.
func (m *Manager) Run(ctx context.Context) {
	defer m.stop()
	for m.idle(ctx) {
		m.serve(ctx)
	}
}

// idle waits until there is a policy; false when ctx has ended.
func (m *Manager) idle(ctx context.Context) bool {
	for ctx.Err() == nil {
		policies, err := m.policies()
		if err == nil && len(policies) > 0 {
			return true
		}
		if err == nil {
			m.mu.Lock()
			m.known = true
			m.mu.Unlock()
		}
		select {
		case <-m.poke:
		case <-ctx.Done():
		}
	}
	return false
}

// policies are those that mean this node. Why they are not known is said once.
func (m *Manager) policies() ([]vfpolicy.Policy, error) {
	out, err := m.cfg.Policies()
	said := ""
	if err != nil && !errors.Is(err, core.ErrUnavailable) {
		said = err.Error()
	}
	if said != m.said && said != "" {
		m.cfg.Log.Warn("policies of virtual functions not read: kubelet keeps what it was told", "err", err)
	}
	m.said = said
	return out, err
}

// serve looks again and again until there is no policy any more, or ctx ends.
func (m *Manager) serve(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		_ = filewatch.Follow(ctx, filewatch.Config{Paths: filewatch.Path(m.cfg.Dir), Period: time.Minute, Log: m.cfg.Log}, func() error {
			m.Poke()
			return nil
		})
	})
	for {
		policies, err := m.policies()
		if err == nil {
			m.pass(ctx, policies)
			if m.clean(ctx) {
				m.pass(ctx, policies)
			}
			m.tell(ctx)
		}
		if err == nil && len(policies) == 0 {
			m.stop()
			return
		}
		select {
		case <-m.poke:
		case <-time.After(look):
		case <-ctx.Done():
			return
		}
	}
}

// stop takes all resources back.
func (m *Manager) stop() {
	for name, e := range m.endpoints {
		e.stop()
		delete(m.endpoints, name)
	}
}

// pass makes cards and kubelet what the policies say. What cannot be looked at leaves all
// as it is.
func (m *Manager) pass(ctx context.Context, policies []vfpolicy.Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load()
	next, err := m.observe(policies)
	if err != nil {
		m.cfg.Log.Warn("cards not looked at: kubelet keeps what it was told of virtual functions", "err", err)
		return
	}
	if m.prepare(ctx, &next) {
		amiss := next.amiss
		if next, err = m.observe(policies); err != nil {
			m.cfg.Log.Warn("cards not looked at: kubelet keeps what it was told of virtual functions", "err", err)
			return
		}
		maps.Copy(next.amiss, amiss)
	}
	m.describe(next)
	m.seen, m.known = next, true
	m.report()
}

// observe looks at the cards.
func (m *Manager) observe(policies []vfpolicy.Policy) (s state, err error) {
	s.amiss, s.alive = map[string][]string{}, m.cfg.Living()
	if s.cards, err = m.cards(); err != nil {
		return s, err
	}
	s.plan = vfpolicy.Assign(policies, s.cards)
	if s.given, err = m.owners(s.alive); err != nil {
		return s, err
	}
	s.sick = map[string]string{}
	for _, card := range s.cards {
		for _, f := range card.Functions {
			if why := m.sick(card, f, s.plan.Owner(f.PCI), s.given[f.PCI]); why != "" {
				s.sick[f.PCI] = why
			}
		}
	}
	return s, nil
}

func (m *Manager) cards() ([]vfpolicy.PF, error) {
	pfs, err := m.cfg.Sys.PFs()
	if err != nil {
		return nil, err
	}
	var out []vfpolicy.PF
	for _, p := range pfs {
		card := vfpolicy.PF{Name: p.Name, PCI: p.PCI, LinkType: p.LinkType, VFs: p.VFs, Most: p.Most, Mbps: p.Mbps, Up: p.Up}
		functions, err := m.cfg.Sys.Functions(p)
		if err != nil {
			return nil, err
		}
		for _, f := range functions {
			card.Functions = append(card.Functions, vfpolicy.Function{
				PCI: f.PCI, PF: f.PF, Index: f.Index, Driver: f.Driver, Vendor: f.Vendor, Device: f.Device,
				NUMA: f.NUMA, RDMA: f.RDMA, RDMANodes: f.RDMANodes, Netdev: f.Netdev, IOMMUGroup: f.IOMMUGroup,
			})
		}
		out = append(out, card)
	}
	return out, nil
}

// owner is who has a function.
type owner struct {
	key   core.Key
	dirty bool // it has ended, and the function was not cleaned yet
}

// owners are those of all functions that somebody has, by address.
func (m *Manager) owners(alive func(core.Key) bool) (map[string]owner, error) {
	marked, err := m.cfg.Cleaner.Marked()
	if err != nil {
		return nil, err
	}
	out := map[string]owner{}
	for key, g := range m.book {
		if k := keyOf(key); alive(k) {
			out[g.PCI] = owner{key: k}
		}
	}
	for pci, k := range m.cfg.Held() {
		out[pci] = owner{key: k}
	}
	for pci, k := range marked {
		out[pci] = owner{key: k, dirty: !alive(k)}
	}
	return out, nil
}

// sick says why kubelet is not to give a function, "" for a healthy one.
func (m *Manager) sick(card vfpolicy.PF, f vfpolicy.Function, p *vfpolicy.Policy, by owner) string {
	if p == nil {
		return ""
	}
	if by.dirty {
		why := "it waits to be cleaned after " + by.key.String()
		if failed := m.unclean[f.PCI]; failed != "" {
			why += ": " + failed
		}
		return why
	}
	if why := wrongDriver(f, p); why != "" {
		return why
	}
	kernel := f.Driver != sriov.DriverVFIO
	switch {
	case kernel && f.Netdev == "" && by.key == (core.Key{}):
		return "its network device is not on the machine, and no pod that is known has it"
	case kernel && !card.Up:
		return card.Name + " has no carrier"
	}
	return ""
}

// wrongDriver says why a function's driver is not what its policy needs, "" where it is.
func wrongDriver(f vfpolicy.Function, p *vfpolicy.Policy) string {
	vfio := f.Driver == sriov.DriverVFIO
	switch {
	case f.Driver == "":
		return "it has no driver"
	case p.VFIO() && !vfio:
		return "its driver is " + f.Driver + ", not " + sriov.DriverVFIO
	case p.Slot() && vfio:
		return "its driver is " + f.Driver + ", which makes no network device"
	}
	return ""
}

// clean has functions cleaned whose pods have ended: nobody else would, as no pod gets one.
// No pod that starts waits for it. tried: the next look shows what came of it.
func (m *Manager) clean(ctx context.Context) (tried bool) {
	m.mu.Lock()
	given := maps.Clone(m.seen.given)
	m.mu.Unlock()
	limited, stop := context.WithTimeout(ctx, cleanLimit)
	defer stop()
	for pci, by := range given {
		if limited.Err() != nil {
			break // the next look goes on with the others
		}
		if !by.dirty || time.Since(m.tried[pci]) < cleanAgain {
			continue
		}
		err := m.cfg.Cleaner.Clean(limited, pci, by.key)
		m.mu.Lock()
		if delete(m.unclean, pci); err != nil {
			m.unclean[pci] = err.Error()
		}
		m.mu.Unlock()
		if delete(m.tried, pci); err != nil {
			m.tried[pci] = time.Now()
		}
		tried = true
	}
	return tried
}

// load reads what was chosen before the agent started.
func (m *Manager) load() {
	if m.read {
		return
	}
	if _, err := recordfile.Load(m.cfg.Book, &m.book); err != nil {
		m.cfg.Log.Warn("which places kubelet gave is not known: those of pods that run may be given twice", "err", err)
	}
	m.read = true
}

func (m *Manager) report() {
	var out []vfpolicy.Report
	for _, p := range m.seen.plan.Policies {
		r := vfpolicy.Report{Policy: p.Name, Generation: p.Generation, Conflicts: m.seen.plan.Lost[p.Name]}
		r.Amiss = slices.Concat(m.seen.plan.Amiss[p.Name], m.seen.amiss[p.Name])
		for _, res := range m.seen.plan.Resources {
			for _, f := range res.Functions {
				if res.Of[f.PCI].Name != p.Name {
					continue
				}
				r.Devices++
				if m.seen.sick[f.PCI] == "" {
					r.Healthy++
				}
			}
		}
		out = append(out, r)
	}
	if reflect.DeepEqual(out, m.reported) {
		return
	}
	m.reported = out
	for _, r := range out {
		if len(r.Conflicts)+len(r.Amiss) > 0 {
			m.cfg.Log.Warn("policy of virtual functions not wholly in force", "policy", r.Policy, "conflicts", r.Conflicts, "because", r.Amiss)
		}
	}
	if m.cfg.Report != nil {
		m.cfg.Report(out)
	}
}

// offered are the devices of each resource.
func (m *Manager) offered() map[string][]*pb.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]*pb.Device{}
	for _, r := range m.seen.plan.Resources {
		maps.Copy(out, m.devices(r))
	}
	return out
}

// tell has a server for each resource, with its devices, and kubelet know it. Nobody waits
// for kubelet meanwhile.
func (m *Manager) tell(ctx context.Context) {
	wanted := map[string]*endpoint{}
	for name, devices := range m.offered() {
		e := m.endpoints[name]
		if e == nil {
			e = newEndpoint(m, name, m.cfg.Dir)
		}
		e.set(devices)
		wanted[name] = e
	}
	for name, e := range m.endpoints {
		if wanted[name] == nil {
			e.stop()
		}
	}
	m.endpoints = wanted
	for _, e := range wanted {
		if err := e.ensure(ctx); err != nil && !errors.Is(err, os.ErrNotExist) && ctx.Err() == nil {
			m.cfg.Log.Warn("kubelet not told of a resource; tried again", "resource", e.name, "err", err)
		}
	}
}
