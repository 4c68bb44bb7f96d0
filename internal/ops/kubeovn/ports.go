package kubeovn

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	driver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/former"
)

// Keys of Interface external_ids by which Kube-OVN says whose port it is (sdn.md, section 2).
const (
	idPod       = "pod_name"
	idNamespace = "pod_namespace"
	idNetns     = "pod_netns"
)

// port is a pod's as the agent is to have it.
type port struct {
	former.Port
	spec core.Spec
	ids  map[string]string // that make it the agent's
	link rtnl.Link         // its device on the host
}

// podOf is whose port it is, "" for nobody's.
func podOf(p former.Port) string {
	if p.IDs[ovs.KeyVendor] != ovs.Vendor || p.IDs[idPod] == "" || p.IDs[idNamespace] == "" {
		return ""
	}
	return p.IDs[idNamespace] + "/" + p.IDs[idPod]
}

// findPods finds the pods' ports that can be taken over. Those of pods that are gone, or
// whose container nobody knows, stay as they are, and the report says so; of a kind that the
// agent does not serve there must be none.
func (t *taking) findPods(s former.Switch) error {
	containers, err := t.containers()
	if err != nil {
		return err
	}
	c, err := rtnl.Open(t.host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var strange []string
	for _, p := range s.Ports {
		if podOf(p) == "" || p.Bridge != integration(s) {
			continue
		}
		what, err := t.findPod(p, c, containers)
		if err != nil {
			return err
		}
		if what != "" {
			strange = append(strange, fmt.Sprintf("port %s of pod %s is %s", p.Name, podOf(p), what))
		}
	}
	if len(strange) > 0 {
		return hint.On(fmt.Errorf("the agent cannot serve all pods of this node: %s", strings.Join(strange, "; ")), "move these pods to another node: `kubectl drain`")
	}
	return nil
}

// findPod looks at one of them. strange is of what kind it is, where the agent does not
// serve that.
func (t *taking) findPod(p former.Port, c *rtnl.Conn, containers []cniconf.LibcniCache) (strange string, err error) {
	l, err := c.LinkByName(p.Name)
	switch {
	case p.Type != "" || p.Members > 1:
		return p.Kind(), nil
	case errors.Is(err, core.ErrNotFound):
		t.left(p, "it has no device on the node")
		return "", nil
	case err != nil:
		return "", err
	case l.Kind != "veth":
		return "no end of a veth pair, but a VF's representor or another device", nil
	}
	return "", t.addPod(p, l, containers)
}

// left says of a port why it stays as it is.
func (t *taking) left(p former.Port, why string) {
	t.rep.Todo = append(t.rep.Todo, fmt.Sprintf("port %s of pod %s stays as it is: %s; the runtime's DEL removes it all the same", p.Name, podOf(p), why))
}

// addPod adds one that can be taken over.
func (t *taking) addPod(p former.Port, l rtnl.Link, containers []cniconf.LibcniCache) error {
	ifName, err := farEnd(p.IDs[idNetns], l)
	if errors.Is(err, core.ErrNetnsGone) || errors.Is(err, core.ErrNotFound) {
		t.left(p, "its pod's namespace is gone, or is not what "+idNetns+" says")
		return nil
	}
	if err != nil {
		return err
	}
	key, network, ok := keyOf(p, ifName, containers)
	if !ok {
		t.left(p, "which container it is of cannot be told: "+t.results+" has none whose id begins so")
		return nil
	}
	spec, ids, err := driver.Foreign(stateOf(p), key, network, l)
	if err != nil {
		return err
	}
	t.pods = append(t.pods, port{Port: p, spec: spec, ids: ids, link: l})
	return nil
}

// farEnd is the name of a veth pair's other end in a namespace. core.ErrNotFound: it is not
// there.
func farEnd(path string, near rtnl.Link) (string, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = ns.Close() }()
	c, err := rtnl.Open(ns)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	far, err := c.LinkByIndex(near.PeerIndex)
	if err == nil && (far.Kind != "veth" || far.PeerIndex != near.Index) {
		err = core.ErrNotFound
	}
	return far.Name, err
}

// containers are those of which the runtime's libcni keeps what plugins answered. A file
// that is none of its own says nothing.
func (t *taking) containers() (out []cniconf.LibcniCache, err error) {
	files, err := filepath.Glob(filepath.Join(t.results, "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := hostfile.Read(name, hostfile.Limit)
		if err != nil {
			continue
		}
		if c, err := cniconf.ParseLibcniCache(text); err == nil {
			out = append(out, c)
		}
	}
	return out, nil
}

// keyOf is the attachment that a port is of: Kube-OVN has named it by the first characters of
// the container's id, as the agent does. Two containers that fit are none.
func keyOf(p former.Port, ifName string, containers []cniconf.LibcniCache) (key core.Key, network string, ok bool) {
	for _, c := range containers {
		one := core.Key{Container: c.Container, IfName: ifName}
		if core.HostIf(one) != p.Name {
			continue
		}
		if ok && key != one {
			return core.Key{}, "", false
		}
		if !ok || c.IfName == ifName {
			network = c.Network
		}
		key, ok = one, true
	}
	return key, network, ok
}

// stateOf is a port as the driver knows them. Kube-OVN has a rate in the queue alone.
func stateOf(p former.Port) ovs.PortState {
	st := ovs.PortState{Port: ovs.Port{Name: p.Name, Type: p.Type, ExternalIDs: p.IDs, PolicingRate: p.Rate, PolicingBurst: p.Burst}, Bridge: p.Bridge, Trunks: p.Trunks, VLANMode: p.Mode}
	if len(p.Tag) > 0 {
		st.VLAN = p.Tag[0]
	}
	if p.QoS == nil {
		return st
	}
	q := &ovs.QoS{Type: p.QoS.Type, Other: map[string]string{}, ExternalIDs: p.QoS.IDs}
	queue, has := p.QoS.Queues[0]
	if has {
		q.QueueOther = queue.Other
		if rate := queue.Other["max-rate"]; rate != "" {
			q.Other["max-rate"] = rate
		}
	}
	for k, v := range p.QoS.Other {
		q.Other[k] = v
	}
	st.QoS = q
	return st
}

// recordPods begins a record of each container that has none, and counts them.
func (t *taking) recordPods(ctx context.Context, j *journal.Journal) (n int, err error) {
	var order []string
	byContainer := map[string][]port{}
	for _, p := range t.pods {
		id := p.spec.Key.Container
		if !slices.Contains(order, id) {
			order = append(order, id)
		}
		byContainer[id] = append(byContainer[id], p)
	}
	for _, id := range order {
		rec := recordOf(byContainer[id], j.Container(id))
		if len(rec.Specs) == 0 {
			continue
		}
		if err := j.Begin(ctx, rec); err != nil {
			return n, err
		}
		fail.Here("kubeovn.recorded")
		n++
	}
	return n, nil
}

// recordOf is the record of a container's ports that stand in none yet.
func recordOf(ports []port, have []core.Record) core.Record {
	rec := core.Record{Created: time.Now().UTC(), Phase: core.Added, Delivered: true}
	for _, p := range ports {
		if slices.ContainsFunc(have, func(r core.Record) bool {
			return slices.ContainsFunc(record.AllSpecs(r), func(s core.Spec) bool { return s.Key == p.spec.Key })
		}) {
			continue
		}
		if len(rec.Specs) == 0 {
			rec.Key, rec.Pod = p.spec.Key, p.spec.Pod
		}
		record.Adopt(&rec, p.spec)
	}
	rec.Begun = len(rec.Specs)
	return rec
}

// links are the marks of the pods' devices as they were before they were ours.
func (t *taking) links() (out []link) {
	for _, p := range t.pods {
		l := link{Name: p.Name, Alias: p.link.Alias, Group: p.link.Group}
		if p.link.Group == driver.GroupLive {
			l = t.k.link(p.Name)
		}
		out = append(out, l)
	}
	return out
}

// link is what marked a device; of one of which nothing was kept that is nothing.
func (k kept) link(name string) link {
	if i := slices.IndexFunc(k.Links, func(l link) bool { return l.Name == name }); i >= 0 {
		return k.Links[i]
	}
	return link{Name: name}
}

// markLinks gives the pods' devices our marks.
func (t *taking) markLinks() (changed bool, err error) {
	c, err := rtnl.Open(t.host)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	for _, p := range t.pods {
		want := rtnl.Change{Alias: driver.Alias(p.spec.Key), Group: driver.GroupLive}
		if p.link.Alias == want.Alias && p.link.Group == want.Group {
			continue
		}
		changed = true
		if err := c.Apply(p.link.Index, want); err != nil && !errors.Is(err, core.ErrNotFound) {
			return changed, err
		}
		fail.Here("kubeovn.linked")
	}
	return changed, nil
}
