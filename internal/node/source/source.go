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
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/source/folder"
)

// Problem is something that a source does not understand, or understands but
// advises against.
type Problem = folder.Problem

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

// Kinds are those that may stand in a file or an answer; all but pods are others'.
func (s Static) Kinds() []folder.Kind {
	switch {
	case s.Shared && s.Objects:
		return folder.KindsOVN()
	case s.Shared: // whether there is OVN is the agent's to say
		return slices.DeleteFunc(folder.KindsOVN(), func(k folder.Kind) bool { return k.Name == folder.ConfigMap || k.Name == folder.Secret })
	case s.Objects:
		return folder.Kinds(folder.Pod, folder.ConfigMap, folder.Secret)
	}
	return folder.Kinds(folder.Pod)
}

// refusals are the reasons why a file or an answer is not taken.
type refusals []Problem

func (r refusals) Error() string {
	if len(r) == 1 {
		return r[0].String()
	}
	return fmt.Sprintf("%s (and %d more)", r[0], len(r)-1)
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
