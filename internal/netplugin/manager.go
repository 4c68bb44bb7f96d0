package netplugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/lib/keylock"
)

// Operations as an Observer hears of them; kubelet's metrics have these names.
const (
	OpSetUp    = "set_up_pod"
	OpTearDown = "tear_down_pod"
	OpStatus   = "get_pod_network_status"
)

// Observer hears of each operation when it is over.
type Observer interface {
	NetworkPluginDone(operation string, took time.Duration, err error)
}

// Manager asks a plugin: one operation a pod, pods beside each other.
type Manager struct {
	plugin   Plugin
	observer Observer
	turns    *keylock.Queue
	// busy is held by all who change a pod, and alone by who collects: a plugin
	// must not see pods come and go while it looks for what is left (CNI spec
	// 1.1, "GC").
	busy sync.RWMutex
}

// NewManager asks p, and tells o, which may be nil.
func NewManager(p Plugin, o Observer) *Manager {
	return &Manager{plugin: p, observer: o, turns: keylock.New()}
}

// Name is the plugin's.
func (m *Manager) Name() string { return m.plugin.Name() }

// Init is the plugin's, with the error under its name.
func (m *Manager) Init(ctx context.Context, host Host, s Settings) error {
	if err := m.plugin.Init(ctx, host, s); err != nil {
		return fmt.Errorf("network plugin %s: %w", m.plugin.Name(), err)
	}
	return nil
}

// Run does what the plugin has to do between the calls, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	if r, ok := m.plugin.(Runner); ok {
		r.Run(ctx)
	}
}

// SetPodCIDR tells the plugin the node's pod CIDRs, "a[,b]".
func (m *Manager) SetPodCIDR(ctx context.Context, cidrs string) error {
	err := m.plugin.Event(ctx, EventPodCIDR, map[string]string{DetailPodCIDR: cidrs})
	if err != nil {
		return fmt.Errorf("network plugin %s: pod CIDR %s: %w", m.plugin.Name(), cidrs, err)
	}
	return nil
}

// Status is the plugin's.
func (m *Manager) Status(ctx context.Context) error { return m.plugin.Status(ctx) }

// SetUpPod attaches a pod, after whatever is under way for it.
func (m *Manager) SetUpPod(ctx context.Context, pod Pod) error {
	return m.change(ctx, OpSetUp, pod, m.plugin.SetUpPod)
}

// TearDownPod detaches a pod, after whatever is under way for it.
func (m *Manager) TearDownPod(ctx context.Context, pod Pod) error {
	return m.change(ctx, OpTearDown, pod, m.plugin.TearDownPod)
}

func (m *Manager) change(ctx context.Context, op string, pod Pod, do func(context.Context, Pod) error) (err error) {
	defer m.time(op, &err)()
	done, err := m.turns.Lock(ctx, turnOf(pod))
	if err == nil {
		defer done()
		m.busy.RLock()
		defer m.busy.RUnlock()
		err = do(ctx, pod)
	}
	if err != nil {
		return fmt.Errorf("network plugin %s: %w", m.plugin.Name(), err)
	}
	return nil
}

// turnOf is by whose name a pod's operations wait for each other: an old sandbox
// of a pod goes before its next one comes. A pod whose name is lost has its
// sandbox.
func turnOf(p Pod) string {
	if p.Name == "" {
		return p.Sandbox
	}
	return p.Name + "_" + p.Namespace
}

// GetPodNetworkStatus waits for nobody: it is asked of pods whose network is
// still being made, by callers who want to know of all.
func (m *Manager) GetPodNetworkStatus(ctx context.Context, pod Pod) (st *PodNetworkStatus, err error) {
	defer m.time(OpStatus, &err)()
	st, err = m.plugin.GetPodNetworkStatus(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("network plugin %s: %w", m.plugin.Name(), err)
	}
	return st, nil
}

// CheckPod proves that a pod is attached as it was; ErrUnchecked where nobody
// can tell.
func (m *Manager) CheckPod(ctx context.Context, pod Pod) error {
	c, ok := m.plugin.(Checker)
	if !ok {
		return ErrUnchecked
	}
	return c.CheckPod(ctx, pod)
}

// Collect gives back what the plugin keeps for sandboxes that are gone. live
// lists those that are not; it is asked after the plugin, which knows no sandbox
// that was made later. While pods are being changed the rest is left to the next
// time.
func (m *Manager) Collect(ctx context.Context, live func(context.Context) (map[string]bool, error)) error {
	c, ok := m.plugin.(Collector)
	if !ok {
		return nil
	}
	attached := c.Attached()
	ids, err := live(ctx)
	if err != nil {
		return fmt.Errorf("network plugin %s: collect: %w", m.plugin.Name(), err)
	}
	var errs []error
	for _, pod := range attached {
		if !ids[pod.Sandbox] {
			errs = append(errs, m.TearDownPod(ctx, pod))
		}
	}
	if m.busy.TryLock() {
		defer m.busy.Unlock()
		if err := c.Collect(ctx, ids); err != nil {
			errs = append(errs, fmt.Errorf("network plugin %s: collect: %w", m.plugin.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// time tells the observer of an operation; err is where its outcome will be.
func (m *Manager) time(op string, err *error) func() {
	if m.observer == nil {
		return func() {}
	}
	began := time.Now()
	return func() { m.observer.NetworkPluginDone(op, time.Since(began), *err) }
}
