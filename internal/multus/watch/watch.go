// Package watch tells of running pods that Multus attached and nobody
// imported: only Multus' files know their networks, which therefore stay as they
// are, whatever their annotations ask for by now. It changes nothing.
package watch

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/confdir"
)

// runtimeIfName is what runtimes call a pod's first interface, which Multus does
// not keep.
const runtimeIfName = "eth0"

// Reasons of the condition.
const (
	reasonAttached = "AsAnnotated"
	reasonFailed   = "FailedAttachment"
)

// Config is where the pods are known from, and who hears of them.
type Config struct {
	Journal *journal.Journal
	Source  resolve.Source
	Multus  func(core.Request) records.Folder // where a configuration's Multus keeps its records
	Daemon  cniconf.Daemon                    // the agent's file
	Files   fs.FS                             // the machine's
	ConfDir string                            // of the runtime's configurations
	Log     *slog.Logger

	Notices    core.Notices
	Conditions Conditions // nil: nobody wants to know
	Condition  string     // its type
}

// Conditions are what pods are told that lasts, and what they were told, also before this start.
type Conditions interface {
	core.Conditions
	Told(pod core.Pod, kind string) (status string)
}

// Teller tells of pods. It is safe for concurrent use.
type Teller struct {
	Config

	mu   sync.Mutex
	pods map[string]core.Pod // by container: whose it is, by name alone
	told map[string]string   // by container: what was told last; "" for nothing
}

// New makes a Teller that has told nothing.
func New(c Config) *Teller {
	return &Teller{Config: c, pods: map[string]core.Pod{}, told: map[string]string{}}
}

// PodChanged looks at a pod that may have changed: one of Multus' whose annotation asks
// for other networks than it has gets an event, a condition and a failure in the
// journal, once for each difference, and the condition again when there is none
// any more. A pod of the journal, and a node on which another program serves the
// pods, are not its affair.
func (t *Teller) PodChanged(ctx context.Context, pod core.Pod) {
	pod = named(pod)
	if len(t.Journal.PodHeads(pod)) > 0 {
		return
	}
	conf, ok := t.serving()
	if !ok {
		return
	}
	folder := t.Multus(core.Request{Conf: conf})
	containers, err := folder.Containers()
	if err != nil {
		return // asked again with the next change
	}
	t.keep(containers)
	for _, id := range containers {
		if len(t.Journal.Container(id)) > 0 {
			continue
		}
		of, known := t.of(id)
		if known && of != pod {
			continue
		}
		left, err := folder.Of(core.Request{Key: core.Key{Container: id, IfName: runtimeIfName}})
		if err != nil || left == nil {
			continue // DEL and `fairlead import multus` say what is wrong with it
		}
		if of = named(left.Pod()); of == pod {
			t.container(ctx, id, conf.Name, left)
		}
		t.is(id, of)
	}
}

// named is a pod by name alone.
func named(p core.Pod) core.Pod { return core.Pod{Namespace: p.Namespace, Name: p.Name} }

// serving is the runtime's configuration that has us give pods all their
// networks; Multus' own looks the same where our plugin answers to its type.
func (t *Teller) serving() (conf core.Conf, ok bool) {
	ours := slices.ContainsFunc(t.Journal.Heads(), func(h journal.Head) bool { return h.HasCall })
	for _, c := range t.chains() {
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

func (t *Teller) chains() []core.Chain { return confdir.Reader{Files: t.Files}.All(t.ConfDir) }

// container compares what Multus gave a container with what its pod's annotation
// asks for by now.
func (t *Teller) container(ctx context.Context, id, network string, left *records.Left) {
	ns, err := netns.Identify(left.Netns)
	if err != nil {
		return // it does not run any more
	}
	rec := left.Record(core.Key{Container: id, IfName: runtimeIfName}, network, ns)
	if records.There(rec) != nil {
		return
	}
	words, ok := t.compare(ctx, rec)
	if !ok || !t.tell(id, words) && (words != "" || !t.complained(rec.Pod)) {
		return
	}
	status, reason, message := "True", reasonAttached, ""
	if words != "" {
		status, reason = "False", reasonFailed
		message = "Multus attached this pod, and Fairlead has no record of it: its networks stay as they are, though its annotation " +
			words + "; `fairlead import multus --apply` takes it over, or delete the pod"
		a := core.Attempt{Op: core.HotPlug, Key: rec.Key, Pod: rec.Pod, When: time.Now().UTC(), Code: core.CodeConfig, Error: message}
		t.Journal.Fail(a)
		t.Notices.Failed(a)
	}
	if t.Conditions != nil {
		t.Conditions.Condition(rec.Pod, t.Condition, status, reason, message)
	}
}

// complained tells that a pod was told of a difference last, be it before this start.
func (t *Teller) complained(pod core.Pod) bool {
	return t.Conditions != nil && t.Conditions.Told(pod, t.Condition) == "False"
}

// compare says what a pod's annotation asks for that the record has not; false
// where nobody knows: of a pod that is not known yet or another one by now, or
// an annotation of which nobody can make anything.
func (t *Teller) compare(ctx context.Context, rec core.Record) (words string, ok bool) {
	req, err := record.Request(rec, record.Recall(rec, t.chains()))
	if err != nil {
		return "", false
	}
	req.Conf = t.Daemon.Over(req.Conf)
	in := resolve.Input{Request: req, Files: t.Files, ConfDir: t.ConfDir, Log: t.Log}
	have := record.Present(rec)
	fixed := append([]resolve.Present{{IfName: rec.Key.IfName}}, record.Fixed(rec, have)...)
	change, err := resolve.Replug(ctx, resolve.Heard{Source: t.Source}, in, have, fixed)
	return asksFor(change), err == nil
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
func (t *Teller) keep(containers []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.pods {
		if !slices.Contains(containers, id) {
			delete(t.pods, id)
			delete(t.told, id)
		}
	}
}

func (t *Teller) of(id string) (core.Pod, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pod, known := t.pods[id]
	return pod, known
}

func (t *Teller) is(id string, pod core.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[id] = pod
}

// tell remembers what is told of a container, and whether that is new.
func (t *Teller) tell(id, words string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told[id] == words {
		return false
	}
	t.told[id] = words
	return true
}
