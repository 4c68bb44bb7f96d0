package source

import (
	"encoding/hex"
	"hash/fnv"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HashKey is the annotation with the UID that follows from a static pod's text;
// the API server's copy of the pod carries it too (kubelet's pkg/kubelet/types).
const HashKey = "kubernetes.io/config.hash"

// origin is where a static pod was read.
type origin struct {
	node string
	path string // file or URL, as it was given
	file bool
}

// makeStatic turns a decoded, defaulted pod into the node's static pod. The
// order matters: the UID is the hash of the pod before all the rest.
func makeStatic(pod *v1.Pod, o origin) {
	if pod.UID == "" {
		pod.UID = o.uid(pod)
	}
	pod.Name += "-" + strings.ToLower(o.node)
	if pod.Namespace == "" {
		pod.Namespace = v1.NamespaceDefault
	}
	pod.Spec.NodeName = o.node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[HashKey] = string(pod.UID)
	if o.file {
		tolerate(pod)
	}
	pod.Status.Phase = v1.PodPending
}

// uid is FNV-128a of the pod's dump and where it comes from, in hexadecimal.
// The node's name is part of it for files, which are many machines' own; not
// for a URL, which is the same for all.
func (o origin) uid(pod *v1.Pod) types.UID {
	h := fnv.New128a()
	dump(h, pod) // a hash never fails
	if o.file {
		_, _ = io.WriteString(h, "host:"+o.node+"file:"+o.path)
	} else {
		_, _ = io.WriteString(h, "url:"+o.path)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// tolerate lets the pod stay whatever is wrong with the node.
func tolerate(pod *v1.Pod) {
	want := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	var out []v1.Toleration
	placed := false
	for _, t := range pod.Spec.Tolerations {
		if t.MatchToleration(&want) {
			t, placed = want, true
		}
		out = append(out, t)
	}
	if !placed {
		out = append(out, want)
	}
	pod.Spec.Tolerations = out
}
