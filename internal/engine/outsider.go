package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/leftover"
	"github.com/fairlead/fairlead/internal/record"
	"github.com/fairlead/fairlead/internal/resolve"
	"github.com/fairlead/fairlead/internal/trace"
)

// runtimeIfName is what runtimes call a pod's first interface, which Multus does
// not keep.
const runtimeIfName = "eth0"

// outsiders are running containers that Multus attached and nobody imported. Only
// Multus' files know their networks, which therefore stay as they are.
type outsiders struct {
	mu   sync.Mutex
	pods map[string]core.Pod // by container: whose it is, by name alone
	told map[string]string   // by container: what was told last; "" for nothing
}

// heed tells of a pod of Multus' whose annotation asks for other networks than
// it has, once for each difference, and when there is none any more. A node on
// which another program serves the pods is not our affair.
func (e *Engine) heed(ctx context.Context, pod core.Pod) {
	conf, ok := e.serving()
	if !ok {
		return
	}
	folder := e.Multus(core.Request{Conf: conf})
	containers := folder.Containers()
	e.outsiders.keep(containers)
	for _, id := range containers {
		if len(e.Journal.Container(id)) > 0 {
			continue
		}
		of, known := e.outsiders.of(id)
		if known && of != pod {
			continue
		}
		left, err := folder.Of(core.Request{Key: core.Key{Container: id, IfName: runtimeIfName}})
		if err != nil || left == nil {
			continue // DEL and `fairlead import multus` say what is wrong with it
		}
		if of = named(left.Pod()); of == pod {
			e.heedContainer(ctx, id, conf.Name, left)
		}
		e.outsiders.is(id, of)
	}
}

// serving is the runtime's configuration that has us give pods all their
// networks; Multus' own looks the same where our plugin answers to its type.
func (e *Engine) serving() (conf core.Conf, ok bool) {
	ours := slices.ContainsFunc(e.Journal.Heads(), func(h journal.Head) bool { return h.Asked })
	for _, c := range e.runtimeChains() {
		for _, p := range c.Plugins {
			if !core.MetaType(p.Type) {
				continue
			}
			raw, err := cniconf.PluginConf(c, p, cniconf.Inject{})
			if err == nil {
				conf, err = cniconf.Parse(raw)
			}
			return conf, err == nil && (ours || p.Type == "fairlead")
		}
	}
	return conf, false
}

// heedContainer compares what Multus gave a container with what its pod's
// annotation asks for by now.
func (e *Engine) heedContainer(ctx context.Context, id, network string, left *leftover.Left) {
	ns, err := e.identify(left.Netns)
	if err != nil {
		return // it does not run any more
	}
	for i := range left.Specs {
		left.Specs[i].Driver = exec.Name
	}
	rec := left.Record(core.Key{Container: id, IfName: runtimeIfName}, network, ns)
	if leftover.There(rec) != nil {
		return
	}
	r := &replug{e: e, rec: rec, all: []core.Record{rec}, ask: record.Recall(rec, e.runtimeChains()), trace: trace.New(e.Observer)}
	if r.req, err = record.Request(rec, r.ask); err != nil {
		return
	}
	have := record.Present(rec)
	change, err := resolve.Replug(ctx, resolve.Heard{Source: e.Source}, e.input(r.req), have, r.taken(have))
	if err != nil {
		return // not known yet, another pod by now, or an annotation of which nobody can make anything
	}
	words := asksFor(change)
	if !e.outsiders.tell(id, words) {
		return
	}
	status, reason, message := "True", reasonAttached, ""
	if words != "" {
		err := r.failed("", core.Errorf(core.CodeConfig, "Multus attached this pod, and Fairlead has no record of it: its networks stay as they are, though its annotation %s; `fairlead import multus --apply` takes it over, or delete the pod", words))
		status, reason, message = "False", reasonFailed, err.Error()
	}
	if e.Conditions != nil {
		e.Conditions.Condition(rec.Pod, NetworksAttached, status, reason, message)
	}
}

// asksFor says a change in words, "" for none.
func asksFor(c resolve.Change) string {
	var words []string
	for _, n := range c.Come {
		words = append(words, fmt.Sprintf("asks for %s as %s", n.Network, n.Want.IfName))
	}
	for _, p := range c.Gone {
		words = append(words, fmt.Sprintf("does not ask for %s any more", p.IfName))
	}
	return strings.Join(words, " and ")
}

// keep forgets the containers of which there is no record of Multus' any more.
func (o *outsiders) keep(containers []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.pods {
		if !slices.Contains(containers, id) {
			delete(o.pods, id)
			delete(o.told, id)
		}
	}
}

func (o *outsiders) of(id string) (core.Pod, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pod, known := o.pods[id]
	return pod, known
}

func (o *outsiders) is(id string, pod core.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pods == nil {
		o.pods = map[string]core.Pod{}
	}
	o.pods[id] = pod
}

// tell remembers what is told of a container, and whether that is new.
func (o *outsiders) tell(id, words string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[id] == words {
		return false
	}
	if o.told == nil {
		o.told = map[string]string{}
	}
	o.told[id] = words
	return true
}
