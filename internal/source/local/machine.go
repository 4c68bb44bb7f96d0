package local

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Machine is a Source of a machine with OVN: beside what the folder declares it has
// what a controller in the same process says of pods and of the node, as an API
// server has it in a cluster. A pod is there from its ADD until its DEL.
type Machine struct {
	*Source
	node  string
	known chan struct{} // closed when the pods are known that the machine had before

	mu     sync.Mutex
	guests map[name]*guest
	notes  map[string]string // of the node
	said   map[folder.ID]string
	wake   chan struct{}                 // closed and made anew when annotations change
	hears  map[*func(folder.ID)]struct{} // controllers
	led    func() error
}

// name is that of a pod.
type name struct{ namespace, name string }

func nameOf(p core.Pod) name { return name{p.Namespace, p.Name} }

// guest is a pod that the runtime has told of.
type guest struct {
	core.Pod                     // UID as the runtime says it
	told       map[string]string // by the controller
	runtime    map[string]string // annotations by the runtime, nil for none
	containers map[string]bool   // its sandboxes
}

// OpenMachine is Open of a folder on a machine with OVN; node is the machine's name.
func OpenMachine(dir, node string, log *slog.Logger) (*Machine, error) {
	f, err := open(dir, folder.KindsOVN(), log)
	if err != nil {
		return nil, err
	}
	return MachineOver(f, node, log)
}

// MachineOver is OpenMachine of a folder that others read too.
func MachineOver(f *folder.Folder, node string, log *slog.Logger) (*Machine, error) {
	s, err := over(f, log, wholeMakers())
	if err != nil {
		return nil, err
	}
	m := &Machine{
		Source: s, node: node, known: make(chan struct{}), guests: map[name]*guest{}, notes: map[string]string{},
		said: map[folder.ID]string{}, wake: make(chan struct{}), hears: map[*func(folder.ID)]struct{}{},
		led: func() error { return errNoController },
	}
	s.mu.Lock()
	s.passed = m.heard
	s.mu.Unlock()
	return m, nil
}

var errNoController = fmt.Errorf("the controller in this process does not run yet: %w", core.ErrUnavailable)

// heard passes news of an object of the folder on.
func (m *Machine) heard(i folder.ID) {
	m.mu.Lock()
	if _, stays := m.current.Load().objects[i]; !stays {
		delete(m.said, i)
	}
	pods := []folder.ID{i}
	if i.Kind == folder.Pod {
		pods = append(pods, folder.ID{Kind: folder.Pod, Namespace: i.Namespace, Name: i.Name + "-" + m.node})
	}
	m.mu.Unlock()
	m.tell(pods...)
}

// tell has controllers hear of objects, and those look again who wait for
// annotations. The caller does not hold mu.
func (m *Machine) tell(all ...folder.ID) {
	m.mu.Lock()
	close(m.wake)
	m.wake = make(chan struct{})
	hears := slices.Collect(maps.Keys(m.hears))
	m.mu.Unlock()
	for _, fn := range hears {
		for _, i := range all {
			(*fn)(i)
		}
	}
}

// Announce makes a pod known by its ADD; one of another UID than before is another
// pod. It may be repeated.
func (m *Machine) Announce(req core.Request) {
	m.arrive(req.Key.Container, req.Pod, req.Conf.Annotations, nil)
}

// Recall makes a pod known that was attached before this process began, with the
// addresses that it has.
func (m *Machine) Recall(req core.Request, specs []core.Spec) {
	told := map[string]string{}
	for _, s := range specs {
		if s.NIC == nil || s.NIC.Subnet == "" || s.NIC.OVS == nil {
			continue
		}
		rest, ok := strings.CutPrefix(s.NIC.IfaceID, req.Pod.Name+"."+req.Pod.Namespace)
		if !ok {
			continue
		}
		at := cmp.Or(strings.TrimPrefix(rest, "."), v1.DefaultProvider) + v1.ProviderSuffix
		var ips []string
		for _, a := range s.NIC.Addrs {
			ips = append(ips, a.Addr().String())
		}
		told[at+v1.FieldIP], told[at+v1.FieldMAC] = strings.Join(ips, ","), s.NIC.MAC.String()
		told[at+v1.FieldSubnet], told[at+v1.FieldAllocated] = s.NIC.Subnet, "true"
	}
	m.arrive(req.Key.Container, req.Pod, req.Conf.Annotations, told)
}

func (m *Machine) arrive(container string, pod core.Pod, runtime, told map[string]string) {
	if pod.IsZero() {
		return
	}
	m.mu.Lock()
	g := m.guests[nameOf(pod)]
	if g == nil || g.UID != pod.UID {
		g = &guest{Pod: pod, told: map[string]string{}, containers: map[string]bool{}}
		m.guests[nameOf(pod)] = g
	}
	g.containers[container] = true
	if runtime != nil {
		g.runtime = runtime
	}
	maps.Copy(g.told, told)
	m.mu.Unlock()
	m.tell(podID(pod))
}

func podID(p core.Pod) folder.ID {
	return folder.ID{Kind: folder.Pod, Namespace: p.Namespace, Name: p.Name}
}

// Leave forgets a sandbox, and with its last one the pod.
func (m *Machine) Leave(container string, pod core.Pod) {
	m.mu.Lock()
	g := m.guests[nameOf(pod)]
	gone := g != nil && g.containers[container]
	if gone {
		delete(g.containers, container)
		if gone = len(g.containers) == 0; gone {
			delete(m.guests, nameOf(pod))
			delete(m.said, podID(pod))
		}
	}
	m.mu.Unlock()
	if gone {
		m.tell(podID(pod))
	}
}

// Known says that all pods are announced that the machine had before this process
// began: a controller may begin to lead. It is called once.
func (m *Machine) Known() { close(m.known) }

// Follow returns when all is known, and has changed called for each object that
// comes, changes or goes after that, until ctx ends. changed does not block.
func (m *Machine) Follow(ctx context.Context, changed func(folder.ID)) error {
	select {
	case <-m.known:
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	m.hears[&changed] = struct{}{}
	m.mu.Unlock()
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.hears, &changed)
	})
	return nil
}

// merged are a pod's annotations with those of the controller; the folder's own
// count more than the runtime's. The caller holds mu.
func (m *Machine) merged(g *guest) (notes map[string]string, controller string) {
	notes = map[string]string{}
	if o, ok := m.current.Load().objects[podID(g.Pod)]; ok {
		p, _ := o.value.(resolve.Pod)
		maps.Copy(notes, p.Annotations)
		controller = p.Controller
	} else {
		maps.Copy(notes, g.runtime)
	}
	maps.Copy(notes, g.told)
	return notes, controller
}

// Pod implements resolve.Source.
func (m *Machine) Pod(ctx context.Context, want core.Pod) (*resolve.Pod, error) {
	m.mu.Lock()
	g := m.guests[nameOf(want)]
	m.mu.Unlock()
	if g == nil {
		return m.Source.Pod(ctx, want)
	}
	if p, wrong := m.current.Load().broken[podID(want)]; wrong {
		return nil, core.Errorf(core.CodeValue, "%s is declared but wrong: %s", podID(want), p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	notes, controller := m.merged(g)
	return &resolve.Pod{Pod: g.Pod, Annotations: notes, Controller: controller}, nil
}

// Differs implements allocated.Follower.
func (m *Machine) Differs(ctx context.Context, want core.Pod, seen map[string]string) error {
	for {
		m.mu.Lock()
		g, wake := m.guests[nameOf(want)], m.wake
		if g == nil || want.UID != "" && g.UID != want.UID {
			m.mu.Unlock()
			return fmt.Errorf("pod %s with UID %q: %w", want, want.UID, core.ErrNotFound)
		}
		notes, _ := m.merged(g)
		m.mu.Unlock()
		if !maps.Equal(notes, seen) {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Join is what the controller gave the node in OVN's network of nodes, the zero
// value for nothing yet. A change is told as one of Subnets is.
func (m *Machine) Join() core.Join {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, _ := annotation.ReadJoin(m.notes)
	return j
}

// Why implements allocated.Teller: what was said last of a pod that is not served;
// where no controller leads it says that.
func (m *Machine) Why(_ context.Context, p core.Pod) string {
	if err := m.Led(); err != nil {
		return err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said[podID(p)]
}

// Led is nil while the controller leads, else it says why it does not.
func (m *Machine) Led() error {
	m.mu.Lock()
	led := m.led
	m.mu.Unlock()
	return led()
}

// LedBy takes who tells whether the controller leads.
func (m *Machine) LedBy(led func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.led = led
}

// Problems are those of the folder, and what the controller does not carry out of
// it.
func (m *Machine) Problems() []resolve.Problem {
	out := m.Source.Problems()
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.current.Load()
	for i, reason := range m.said {
		p := resolve.Problem{File: i.String(), Reason: reason}
		if o, ok := now.objects[i]; ok {
			p = resolve.Problem{File: o.file, Line: o.line, Reason: i.String() + ": " + reason}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b resolve.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Say notes why an object is not as it should be, "" for nothing. Of a pod that is
// gone nothing is noted.
func (m *Machine) Say(i folder.ID, why string) {
	m.mu.Lock()
	if m.guests[name{i.Namespace, i.Name}] == nil && i.Kind == folder.Pod {
		why = ""
	}
	before := m.said[i]
	m.said[i] = why
	if why == "" {
		delete(m.said, i)
	}
	m.mu.Unlock()
	if why != before {
		m.news()
	}
}
