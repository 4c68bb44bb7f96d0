package node

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/podruntime"
)

// ProbeKind is what a probe decides.
type ProbeKind int

// The kinds of probes.
const (
	ProbeStartup   ProbeKind = iota // whether the others begin
	ProbeReadiness                  // whether the container may be talked to
	ProbeLiveness                   // whether it is restarted
)

// probe is one probe of one instance of a container.
type probe struct {
	id   string
	kind ProbeKind
}

// Probed hears the result of a probe for the container's instance with an id,
// once its thresholds are passed. One of an instance that is gone is harmless.
func (n *Node) Probed(uid types.UID, id string, kind ProbeKind, ok bool) {
	n.mu.Lock()
	w := n.workers[uid]
	changed := false
	if w != nil {
		if w.probes == nil {
			w.probes = map[probe]bool{}
		}
		was, known := w.probes[probe{id, kind}]
		changed = !known || was != ok
		w.probes[probe{id, kind}] = ok
	}
	n.mu.Unlock()
	if changed {
		w.poke()
	}
}

// passed tells that an instance, which runs, needs no such probe or has passed
// it. Node.mu is held.
func (n *Node) passed(w *worker, id string, defined *v1.Probe, kind ProbeKind) bool {
	return n.conf.Prober == nil || defined == nil || w.probes[probe{id, kind}]
}

// health is what probes say of the instances that run.
func (n *Node) health(w *worker, pod *v1.Pod, st *podruntime.Status) map[string]podruntime.Health {
	if n.conf.Prober == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]podruntime.Health{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			has := st.Of(list[i].Name)
			if has == nil || !has.Running() {
				continue
			}
			alive, told := w.probes[probe{has.ID, ProbeLiveness}]
			up, begun := w.probes[probe{has.ID, ProbeStartup}]
			out[has.Name] = podruntime.Health{
				Failed:     told && !alive || begun && !up,
				NotStarted: list[i].StartupProbe != nil && !up,
			}
		}
	}
	return out
}

// reasonOf gives a failure its word.
func reasonOf(err error) podruntime.Reason {
	if e := (*podruntime.Error)(nil); errors.As(err, &e) {
		return podruntime.Reason{Reason: e.Reason, Message: e.Err.Error()}
	}
	return podruntime.Reason{Reason: "FailedSync", Message: err.Error()}
}
