package runtimes

import (
	"context"
	"errors"
	"fmt"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrNoPods says that a runtime starts no pod at all, with or without a network:
// it lacks the image of its sandboxes, say.
var ErrNoPods = errors.New("the runtime starts no pod, with or without a network of its own")

// ProofLabel marks the sandboxes of Prove.
const ProofLabel = "fairlead.io/proof"

// proofEnd is how long the end of a sandbox may take, whatever has become of its
// begin.
const proofEnd = 30 * time.Second

// Prove has the runtime run a pod's sandbox with a network of its own, and remove
// it: one real ADD and DEL. Where that fails, one with the node's network tells
// whether it is the network's fault; else it is an ErrNoPods.
func Prove(ctx context.Context, socket string) error {
	return call(socket, func(service cri.RuntimeServiceClient) error {
		err := proveWith(ctx, service, cri.NamespaceMode_POD)
		if err == nil {
			return nil
		}
		if removeProofs(ctx, service) != nil { // err says why; it would keep the other from its begin
			return err
		}
		if other := proveWith(ctx, service, cri.NamespaceMode_NODE); other != nil {
			return fmt.Errorf("%w: %w", ErrNoPods, other)
		}
		return err
	})
}

func proveWith(ctx context.Context, service cri.RuntimeServiceClient, mode cri.NamespaceMode) error {
	// A proof that was killed may have left a pod, which has the name still.
	if err := removeProofs(ctx, service); err != nil {
		return err
	}
	parent, err := CgroupParent(ctx, service)
	if err != nil {
		return err
	}
	_, err = service.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "fairlead-proof", Namespace: "kube-system", Uid: "fairlead-proof"},
		Labels:   map[string]string{ProofLabel: "true"},
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: parent, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: mode},
		}},
	}})
	return errors.Join(err, removeProofs(ctx, service))
}

// EndProofs removes what a Prove left that was killed.
func EndProofs(ctx context.Context, socket string) error {
	return call(socket, func(service cri.RuntimeServiceClient) error { return removeProofs(ctx, service) })
}

// removeProofs removes what Prove makes, whatever has become of ctx.
func removeProofs(ctx context.Context, service cri.RuntimeServiceClient) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), proofEnd)
	defer cancel()
	list, err := service.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{ProofLabel: "true"}}})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list.GetItems() {
		_, err := service.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.GetId()})
		if err == nil {
			_, err = service.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
