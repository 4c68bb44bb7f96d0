package resolve

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// readPod finds the pod's annotations. The source's are in force: they may have
// changed since the runtime was told. Those that the runtime tells stand in
// where the source does not know the pod, or cannot say, or knows another one of
// that name. A pod that is declared and wrong stays refused.
func (r *resolution) readPod(ctx context.Context) error {
	if r.pod.IsZero() {
		return nil
	}
	r.notes = r.conf.Annotations
	found, err := r.findPod(ctx)
	if errors.Is(err, core.ErrNotFound) || errors.Is(err, core.ErrUnavailable) && r.told() {
		return nil
	}
	if err != nil {
		return core.WithCode(core.CodeTryAgain, "pod "+r.pod.String(), err)
	}
	if !r.is(found) {
		if r.notes != nil {
			return nil
		}
		return core.Errorf(core.CodeTryAgain, "pod %s: K8S_POD_UID is %q but the pod known by that name has UID %q",
			r.pod, r.pod.UID, found.UID)
	}
	if r.pod.UID == "" {
		r.pod.UID = found.UID
	}
	r.notes, r.controller, r.machine = found.Annotations, found.Controller, found.Machine
	return nil
}

// is tells whether found is the pod that the runtime means.
func (r *resolution) is(found *Pod) bool {
	return r.pod.UID == "" || found.UID == "" || r.pod.UID == found.UID || isMirror(r.pod.UID, found)
}

// findPod waits for the pod only where nobody else tells what is asked of it.
func (r *resolution) findPod(ctx context.Context) (*Pod, error) {
	if p, ok := r.src.(Prompt); ok && r.told() {
		return p.KnownPod(ctx, r.pod)
	}
	return r.src.Pod(ctx, r.pod)
}

// told tells that the runtime's annotations say it all. They do not where the
// pod has a list of addresses: which one it gets depends on what controls it.
// Nor do they where a controller writes more of them.
func (r *resolution) told() bool {
	if r.in.OVN {
		return false
	}
	for key := range r.conf.Annotations {
		if strings.Contains(key, v1.ProviderSuffix+v1.FieldIPPool) {
			return false
		}
	}
	return r.conf.Annotations != nil
}

// isMirror tells whether a pod is the mirror of the static pod that kubelet
// knows by uid, a hash of its file: the mirror has a UID of its own, and says
// the hash in an annotation unless the source leaves that out.
func isMirror(uid string, found *Pod) bool {
	hash, said := found.Annotations["kubernetes.io/config.hash"]
	raw, err := hex.DecodeString(uid)
	return err == nil && len(raw) == 16 && (hash == uid || !said)
}
