// Package source reads pods from where a node can be told of them without a
// cluster: a folder of files, or a URL. Each source sends the full list of its
// pods whenever something changed. What a pod becomes on the way (UID, name,
// annotations, defaults) is what kubelet makes of a static pod, to the byte, so
// that a machine can change from one to the other and its pods keep who they
// are.
//
// It must not know who listens, nor how a pod is run. Pods of the API server
// are the package api's.
package source

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// maxSize bounds a file or an answer, exclusive, in bytes (kubelet's limit).
const maxSize = 10 << 20

// Problem is something that a source does not understand, or understands but
// advises against.
type Problem struct {
	Where   string // file or URL
	Line    int    // 1-based; 0 when it is about the whole
	Reason  string
	Warning bool // the pods are taken nevertheless
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.Where + ": " + p.Reason
	}
	return fmt.Sprintf("%s:%d: %s", p.Where, p.Line, p.Reason)
}

// Static says what static pods are to be.
type Static struct {
	// Node is the name of this node; it becomes part of every pod's name.
	Node string
	// Objects allows references to ConfigMaps and Secrets, for a node that
	// has these as files: documents of these kinds may then stand beside the
	// pods and are left to others. Without it they are refused, as kubelet
	// does with everything that an API server would have to serve.
	Objects bool
	// Shared tells that the agent reads its objects from the same place:
	// documents of the kinds that decide networks may stand beside the pods,
	// and of a folder only those files count that the agent reads.
	Shared bool
}

// refusals are the reasons why a file or an answer is not taken.
type refusals []Problem

func (r refusals) Error() string {
	if len(r) == 1 {
		return r[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", r[0], len(r)-1)
}

// teller tells each problem once, as long as it lasts.
type teller struct {
	log  *slog.Logger
	told map[Problem]bool
}

func (t *teller) tell(all []Problem) {
	now := make(map[Problem]bool, len(all))
	for _, p := range all {
		now[p] = true
		if !t.told[p] {
			t.log.Warn("pods: a problem in their source", "where", p.Where, "line", p.Line, "reason", p.Reason, "taken", p.Warning)
		}
	}
	for p := range t.told {
		if !now[p] {
			t.log.Info("pods: a problem in their source is gone", "where", p.Where, "line", p.Line, "reason", p.Reason)
		}
	}
	t.told = now
}

// send gives copies to out: what the source keeps stays its own.
func send(ctx context.Context, out chan<- []*v1.Pod, pods []*v1.Pod) error {
	list := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		list = append(list, p.DeepCopy())
	}
	select {
	case out <- list:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func sortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Line, b.Line))
	})
}
