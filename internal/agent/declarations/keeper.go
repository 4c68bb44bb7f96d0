// Package declarations tells who declares settings of pods what became of them on this
// node: in the status of PodNetworks, and by Events on PodNetworks and ConfigMaps. What is
// declared, and whether it is refused, others say.
package declarations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/source/cluster/settings"
)

const (
	calm  = time.Second      // after a change, so that several are one pass
	again = 5 * time.Second  // after a failure, and while pods are refused
	audit = 5 * time.Minute  // pods that nobody told of
	limit = 10 * time.Second // one write
	// most is how long a message is in bytes: an object has those of many pods.
	most = 512
)

// Config says of whom a Keeper knows what.
type Config struct {
	Node     string
	Pods     *cluster.Source
	Settings *settings.Source
	Heads    func() []journal.Head
	Explain  func(context.Context, core.Pod) (resolve.Explained, error)
	Log      *slog.Logger
}

// Keeper is a Publisher that tells of declarations, too.
type Keeper struct {
	*cluster.Publisher

	cfg   Config
	poked chan struct{}
	asked time.Time // when NetworkPolicies of all pods were looked at

	mu     sync.Mutex
	failed map[core.Pod]core.Attempt // ADDs that were refused, by the pod without its UID
	fresh  map[core.Pod]bool         // attached since their NetworkPolicies were looked at
}

// New makes a Keeper of a Publisher; Keep has it work.
func New(p *cluster.Publisher, c Config) *Keeper {
	return &Keeper{Publisher: p, cfg: c, poked: make(chan struct{}, 1), failed: map[core.Pod]core.Attempt{}, fresh: map[core.Pod]bool{}}
}

func (k *Keeper) poke() {
	select {
	case k.poked <- struct{}{}:
	default:
	}
}

func named(p core.Pod) core.Pod { return core.Pod{Namespace: p.Namespace, Name: p.Name} }

// Attached implements core.Notices.
func (k *Keeper) Attached(r core.Record) {
	k.Publisher.Attached(r)
	k.mu.Lock()
	delete(k.failed, named(r.Pod))
	k.fresh[named(r.Pod)] = true
	k.mu.Unlock()
	k.poke()
}

// Detached implements core.Notices.
func (k *Keeper) Detached(r core.Record) {
	k.Publisher.Detached(r)
	k.poke()
}

// Failed implements core.Notices: those who declare what was refused hear of it, too.
func (k *Keeper) Failed(a core.Attempt) {
	k.Publisher.Failed(a)
	for _, o := range a.Objects {
		k.WarnObject(k.cfg.Settings.About(o), a.Reason, fmt.Sprintf("pod %s: %s (code %d)", a.Pod, a.Error, a.Code))
	}
	if a.Op == core.Add && !a.Pod.IsZero() {
		k.mu.Lock()
		k.failed[named(a.Pod)] = a
		k.mu.Unlock()
		k.poke()
	}
}

// Keep writes the status of PodNetworks until ctx ends: after each change of pods,
// declarations and attachments.
func (k *Keeper) Keep(ctx context.Context) {
	next := time.NewTimer(calm)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.poked:
		case <-k.cfg.Settings.Heard():
		case <-next.C:
		}
		if !retry.Sleep(ctx, calm) {
			return
		}
		err := k.pass(ctx)
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("status of PodNetworks not written yet; tried again", "err", err)
		}
		if err != nil || k.waiting() {
			next.Reset(again)
		} else {
			next.Reset(audit)
		}
	}
}

// waiting tells that pods were refused: nobody tells when such a pod goes.
func (k *Keeper) waiting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.failed) > 0
}

// pass brings all objects up to date; one that fails keeps no other.
func (k *Keeper) pass(ctx context.Context) error {
	all, known := k.cfg.Settings.PodNetworks()
	if synced := k.cfg.Pods.Synced() == nil; !known || !synced {
		return nil // a change pokes
	}
	pods := k.pods()
	own := k.states(ctx, pods)
	var errs []error
	for _, o := range all {
		status, changed := next(o, k.cfg.Node, own["PodNetwork "+o.Namespace+"/"+o.Name], k.cfg.Pods.HasNode)
		if !changed {
			continue
		}
		ctx, stop := context.WithTimeout(ctx, limit)
		errs = append(errs, k.cfg.Settings.SetStatus(ctx, o, status))
		stop()
	}
	if err := k.policies(ctx, pods); err != nil && ctx.Err() == nil {
		k.cfg.Log.Warn("pods' NetworkPolicies not looked at; tried again later", "err", err)
	}
	return errors.Join(errs...)
}

// states are those of this node's pods, by the source that speaks of them.
func (k *Keeper) states(ctx context.Context, pods map[core.Pod][]core.Net) map[string][]v1alpha1.PodNetworkPod {
	out := map[string][]v1alpha1.PodNetworkPod{}
	for pod, nets := range pods {
		x, err := k.cfg.Explain(ctx, pod)
		for source, p := range Judge(pod, nets, k.refused(pod), x, err) {
			out[source] = append(out[source], p)
			if p.Reason == v1alpha1.ReasonRestartNeeded {
				k.Warn(pod, p.Reason, source+": "+p.Message)
			}
		}
	}
	return out
}

// refused is why a pod's ADD failed, nil where it did not.
func (k *Keeper) refused(pod core.Pod) *core.Attempt {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a, ok := k.failed[pod]; ok {
		return &a
	}
	return nil
}

// pods are this node's that have networks or were refused them, with what they have.
func (k *Keeper) pods() map[core.Pod][]core.Net {
	out := map[core.Pod][]core.Net{}
	for _, h := range k.cfg.Heads() {
		if h.Phase == core.Added && !h.Orphan && !h.Pod.IsZero() {
			out[named(h.Pod)] = append(out[named(h.Pod)], h.Statuses...)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for pod := range k.failed {
		if _, has := out[pod]; !has {
			out[pod] = nil
		}
	}
	for pod := range out {
		if _, err := k.cfg.Pods.Known(pod); errors.Is(err, core.ErrNotFound) { // gone, or another node's by now
			delete(out, pod)
			delete(k.failed, pod)
		}
	}
	return out
}

// Judge says of each source that speaks of a pod what became of that. nets are what the pod
// has, nil for nothing; refused is why its ADD failed, nil where it did not; x and err are
// what Explain says now.
func Judge(pod core.Pod, nets []core.Net, refused *core.Attempt, x resolve.Explained, err error) map[string]v1alpha1.PodNetworkPod {
	out := map[string]v1alpha1.PodNetworkPod{}
	say := func(source, reason, message string) {
		out[source] = v1alpha1.PodNetworkPod{Name: pod.Name, Reason: reason, Message: core.Clip(message, most)}
	}
	for _, d := range x.Declarations {
		switch differs := differing(d.Source, nets, x); {
		case nets == nil && refused != nil:
			say(d.Source, reasonOf(refused.Reason), refused.Error)
		case len(differs) > 0:
			say(d.Source, v1alpha1.ReasonRestartNeeded, "a new pod gets "+strings.Join(differs, ", "))
		case nets != nil:
			say(d.Source, v1alpha1.ReasonApplied, "")
		}
	}
	for _, source := range core.Blamed(err) {
		say(source, reasonOf(core.ReasonOf(err)), err.Error())
	}
	return out
}

func reasonOf(reason string) string {
	if reason == "" {
		return v1alpha1.ReasonRefused
	}
	return reason
}

// differing is what a running pod has otherwise than a source declares it that counts.
func differing(source string, nets []core.Net, x resolve.Explained) (out []string) {
	if nets == nil {
		return nil
	}
	for _, i := range x.Interfaces {
		if slices.Contains(i.Sources(), source) {
			out = append(out, i.By(source).Restart(running(nets, i.Name))...)
		}
	}
	return out
}

// running is what a pod has of an interface, nil for nothing.
func running(nets []core.Net, ifName string) *declared.Running {
	i := slices.IndexFunc(nets, func(n core.Net) bool { return n.Interface == ifName })
	if i < 0 {
		return nil
	}
	out := &declared.Running{Network: nets[i].Name, MAC: nets[i].MAC, PF: physical(nets[i])}
	for _, text := range nets[i].IPs {
		if a, err := netip.ParseAddr(text); err == nil {
			out.IPs = append(out.IPs, a)
		}
	}
	return out
}

// physical is the physical function of a device, "" where that is not known.
func physical(n core.Net) string {
	v, err := sriov.At("").VF(n.PCI())
	if err != nil {
		return ""
	}
	return v.PF
}
