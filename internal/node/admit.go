package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fairlead/fairlead/internal/node/carried"
	"github.com/fairlead/fairlead/internal/node/demand"
	"github.com/fairlead/fairlead/internal/node/podruntime"
)

// Reasons for which a pod is not let in; the first two are kubelet's, the first with
// the name of the resource.
const (
	ReasonOutOf       = "OutOf"
	ReasonAffinity    = "NodeAffinity"
	ReasonUnsupported = "UnsupportedField"
	reasonNotCarried  = "NotCarriedOut"
)

// conditionCarried is false of a pod of which something has no effect on this node.
const conditionCarried v1.PodConditionType = "fairlead.io/CarriedOut"

// errLabels is why a pod waits that wants a node of some labels.
var errLabels = &podruntime.Error{Reason: ReasonAffinity, Err: errors.New("the labels of this node are not known yet: its API server has not answered")}

// admit decides once whether a pod is run here at all, before anything is made for
// it. One that has begun goes on, whatever the node has become since. The termination is
// none for a pod that is let in.
func (n *Node) admit(w *worker, pod *v1.Pod, st *podruntime.Status) (termination, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.admitted {
		return termination{}, nil
	}
	if w.status.StartTime == nil && !made(st) {
		if v := n.unsupported(pod); v.Reason != "" {
			return v, nil
		}
		if v, err := n.misplaced(pod); v.Reason != "" || err != nil {
			return v, err
		}
		if v := n.outOf(w, pod); v.Reason != "" {
			return v, nil
		}
	}
	w.admitted = true
	return termination{}, nil
}

// made tells that the runtime has something of a pod.
func made(st *podruntime.Status) bool { return len(st.Sandboxes)+len(st.Containers) > 0 }

// unsupported refuses what must not run without a field that is not carried out.
func (n *Node) unsupported(pod *v1.Pod) termination {
	var texts []string
	for _, f := range carried.Check(pod, static(pod), n.conf.Machine) {
		if f.Refused {
			texts = append(texts, f.String())
		}
	}
	if len(texts) == 0 {
		return termination{}
	}
	return termination{Reason: ReasonUnsupported, Message: strings.Join(texts, "; ")}
}

// misplaced refuses a pod that wants another node.
func (n *Node) misplaced(pod *v1.Pod) (termination, error) {
	if len(pod.Spec.NodeSelector) == 0 && required(pod) == nil {
		return termination{}, nil
	}
	has, known := n.conf.Labels()
	if !known {
		return termination{}, errLabels
	}
	for key, value := range pod.Spec.NodeSelector {
		if got, ok := has[key]; !ok || got != value {
			return termination{Reason: ReasonAffinity, Message: fmt.Sprintf("spec.nodeSelector: this node has not the label %s=%s", key, value)}, nil
		}
	}
	terms := required(pod)
	if terms == nil {
		return termination{}, nil
	}
	for _, term := range terms.NodeSelectorTerms {
		if meets(term, has, pod.Spec.NodeName) {
			return termination{}, nil
		}
	}
	return termination{Reason: ReasonAffinity, Message: "spec.affinity.nodeAffinity: this node meets none of the required terms"}, nil
}

func required(pod *v1.Pod) *v1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// meets tells that a node has what one term says; an empty one says nothing of any.
func meets(term v1.NodeSelectorTerm, has map[string]string, name string) bool {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return false
	}
	return all(term.MatchExpressions, has) && all(term.MatchFields, map[string]string{metav1.ObjectNameField: name})
}

// operators of a node selector in apimachinery's words.
var operators = map[v1.NodeSelectorOperator]selection.Operator{
	v1.NodeSelectorOpIn: selection.In, v1.NodeSelectorOpNotIn: selection.NotIn, v1.NodeSelectorOpExists: selection.Exists,
	v1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, v1.NodeSelectorOpGt: selection.GreaterThan, v1.NodeSelectorOpLt: selection.LessThan,
}

func all(wants []v1.NodeSelectorRequirement, has map[string]string) bool {
	return !slices.ContainsFunc(wants, func(w v1.NodeSelectorRequirement) bool {
		r, err := labels.NewRequirement(w.Key, operators[w.Operator], w.Values)
		return err != nil || !r.Matches(labels.Set(has))
	})
}

// outOf refuses a pod that asks for more than the pods before it leave. Of resources
// that no machine has by itself, a scheduler knows better. Node.mu is held.
func (n *Node) outOf(w *worker, pod *v1.Pod) termination {
	used := v1.ResourceList{}
	for _, other := range n.workers {
		if other != w && other.admitted && other.state != terminated && other.pod != nil {
			demand.Add(used, demand.Requests(other.pod))
		}
	}
	want := demand.Requests(pod)
	for _, name := range sortedNames(want) {
		has, ours := n.conf.Capacity[name]
		q, busy := want[name], used[name]
		if q.IsZero() || !ours && !static(pod) {
			continue
		}
		total := busy.DeepCopy()
		total.Add(q)
		if total.Cmp(has) > 0 {
			return termination{Reason: ReasonOutOf + string(name), Message: fmt.Sprintf(
				"the node has not enough %s: the pod requests %s, other pods have %s of %s", name, q.String(), busy.String(), has.String())}
		}
	}
	return termination{}
}

func sortedNames(l v1.ResourceList) []v1.ResourceName {
	var out []v1.ResourceName
	for name := range l {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// reject ends a pod that is not let in. It is judged anew by a later process: what
// the node has may have changed.
func (n *Node) reject(w *worker, pod *v1.Pod, v termination) {
	n.mu.Lock()
	w.termination = v
	n.mu.Unlock()
	n.publish(w, pod, &podruntime.Status{}, podruntime.Result{}, nil)
	n.tell(pod, podruntime.Event{Warning: true, Reason: v.Reason, Message: v.Message})
	n.conf.Log.Warn("pod is not run", "pod", w.name.String(), "uid", w.uid, "reason", v.Reason, "why", v.Message)
	n.mu.Lock()
	w.end()
	n.mu.Unlock()
}

// untold lists what of a pod has no effect here: what its source does not
// understand, and what this node does not carry out.
func (n *Node) untold(pod *v1.Pod) []string {
	var out []string
	if n.conf.Warnings != nil {
		out = append(out, n.conf.Warnings(pod.UID)...)
	}
	for _, f := range carried.Check(pod, static(pod), n.conf.Machine) {
		out = append(out, f.String())
	}
	return out
}

// warn tells of what has no effect, once for each pod and process: the condition
// goes on telling it.
func (n *Node) warn(w *worker, pod *v1.Pod) {
	texts := n.untold(pod)
	n.mu.Lock()
	told := slices.Equal(w.untold, texts)
	w.untold = texts
	n.mu.Unlock()
	if told {
		return
	}
	for _, text := range texts {
		n.tell(pod, podruntime.Event{Warning: true, Reason: reasonNotCarried, Message: text})
	}
}
