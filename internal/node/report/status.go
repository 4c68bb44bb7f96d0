package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// writeStatus makes an object's status the pod's. What was heard of the object
// may be old: before anything is written it is read, so that the difference is
// one from what is there.
func (r *Reporter) writeStatus(ctx context.Context, p *Pod, object *v1.Pod) error {
	patch, err := r.patch(p, object)
	if err != nil || patch == nil {
		return err
	}
	now, err := r.client.pod(ctx, object.Namespace, object.Name)
	if err != nil {
		if absent(err) {
			return nil
		}
		return fmt.Errorf("status of %s: %w", nameOf(object), err)
	}
	if now.UID != object.UID {
		return nil // another pod by now; the source will say so
	}
	if patch, err = r.patch(p, now); err != nil || patch == nil {
		return err
	}
	if _, err := r.client.patchPod(ctx, now.Namespace, now.Name, patch); !absent(err) {
		return fmt.Errorf("status of %s: %w", nameOf(object), err)
	}
	return nil
}

// patch is what has to change in an object's status; nil when nothing has.
func (r *Reporter) patch(p *Pod, object *v1.Pod) ([]byte, error) {
	r.mu.Lock()
	prefix := r.prefix
	r.mu.Unlock()
	status := merged(&object.Status, p, object.DeletionTimestamp != nil, prefix)
	return statusPatch(object.UID, v1.Pod{Status: object.Status}, v1.Pod{Status: status}, v1.Pod{})
}

// statusPatch is the strategic merge patch from one state of a kind to another,
// which is refused for an object of another UID; nil when there is no difference.
func statusPatch[T any](uid types.UID, was, is, kind T) ([]byte, error) {
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, kind)
	if err != nil {
		return nil, fmt.Errorf("difference of two states: %w", err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	fields["metadata"] = json.RawMessage(fmt.Sprintf(`{"uid":%q}`, uid))
	return json.Marshal(fields)
}

// merged is our status of a pod in an object that others write to as well.
func merged(had *v1.PodStatus, p *Pod, deleted bool, prefix string) v1.PodStatus {
	out := *p.Pod.Status.DeepCopy()
	out.StartTime = cmp.Or(had.StartTime, out.StartTime)
	out.QOSClass = cmp.Or(had.QOSClass, out.QOSClass)
	out.NominatedNodeName, out.ResourceClaimStatuses = had.NominatedNodeName, had.ResourceClaimStatuses
	if out.HostIP != "" {
		out.HostIPs = []v1.HostIP{{IP: out.HostIP}}
	}
	out.Conditions = mergedConditions(had.Conditions, out.Conditions)
	for _, list := range [][]v1.ContainerStatus{out.InitContainerStatuses, out.ContainerStatuses, out.EphemeralContainerStatuses} {
		for i := range list {
			prefixIDs(&list[i], prefix)
		}
	}
	switch {
	case ended(had.Phase):
		out.Phase = had.Phase // for good
	case deleted && p.Ended && !ended(out.Phase):
		out.Phase = lastPhase(out.ContainerStatuses)
	}
	return out
}

// mergedConditions are ours, and those of others; the time of a change stays
// that of the first who saw it.
func mergedConditions(had, ours []v1.PodCondition) []v1.PodCondition {
	for i := range ours {
		c := &ours[i]
		if was := conditionOf(had, c.Type); was != nil {
			c.LastProbeTime = was.LastProbeTime
			if was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	for _, c := range had {
		if conditionOf(ours, c.Type) == nil {
			ours = append(ours, c)
		}
	}
	return ours
}

func conditionOf(all []v1.PodCondition, kind v1.PodConditionType) *v1.PodCondition {
	i := slices.IndexFunc(all, func(c v1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func ended(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// lastPhase is how a pod ended that was deleted while it ran.
func lastPhase(all []v1.ContainerStatus) v1.PodPhase {
	for i := range all {
		if t := all[i].State.Terminated; t == nil || t.ExitCode != 0 {
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}

// prefixIDs writes containers' ids as the API has them, "containerd://ID".
func prefixIDs(c *v1.ContainerStatus, prefix string) {
	for _, id := range []*string{&c.ContainerID, terminatedID(&c.State), terminatedID(&c.LastTerminationState)} {
		if id != nil && *id != "" && !strings.Contains(*id, "://") { // of a pod that had ended before, it is the server's own
			*id = prefix + *id
		}
	}
}

func terminatedID(s *v1.ContainerState) *string {
	if s.Terminated == nil {
		return nil
	}
	return &s.Terminated.ContainerID
}
