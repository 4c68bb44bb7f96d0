package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// engine is a node's runtime through CRI.
type engine struct{ cri.RuntimeServiceClient }

// CRI is the runtime's socket as this process reaches it.
func (k *Node) CRI() string {
	if k.runtime != "" {
		return k.runtime
	}
	return filepath.Join(k.Dir, containerdSocket)
}

// cri calls f with a connection to the runtime.
func (k *Node) cri(f func(context.Context, engine) error) error {
	conn, err := grpc.NewClient("unix://"+k.CRI(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := limited()
	defer cancel()
	return f(ctx, engine{cri.NewRuntimeServiceClient(conn)})
}

// ready wants the condition RuntimeReady.
func (r engine) ready(ctx context.Context) error {
	s, err := r.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range s.Status.Conditions {
		if c.Type == cri.RuntimeReady && c.Status {
			return nil
		}
	}
	return errors.New("the runtime is not ready")
}

// removeSandboxes ends all pods of the node through the runtime: plugins get
// their DEL, processes and namespaces go. The newest end first: an agent that is
// a pod itself has come before the pods that it serves.
func (k *Node) removeSandboxes() error {
	return k.cri(func(ctx context.Context, c engine) error {
		list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return fmt.Errorf("list sandboxes: %w", err)
		}
		slices.SortFunc(list.Items, func(a, b *cri.PodSandbox) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
		var errs []error
		for _, s := range list.Items {
			_, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.Id})
			if err == nil {
				_, err = c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.Id})
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("remove the sandbox of %s/%s: %w", s.Metadata.Namespace, s.Metadata.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// sandbox finds the running sandbox of a pod: its container id and the path of
// its network namespace inside the node.
func (k *Node) sandbox(uid string) (id, netns string, err error) {
	err = k.cri(func(ctx context.Context, c engine) error {
		list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
			State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
			LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid},
		}})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d running sandboxes of the pod", len(list.Items))
		}
		id = list.Items[0].Id
		status, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
		if err != nil {
			return err
		}
		netns, err = netnsOf(status.Info["info"])
		return err
	})
	return id, netns, err
}

// netnsOf reads the network namespace from the verbose status, whose shape is
// containerd's and ours.
func netnsOf(info string) (string, error) {
	var s struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(info), &s); err != nil {
		return "", fmt.Errorf("read a sandbox's status: %w", err)
	}
	all := s.RuntimeSpec.Linux.Namespaces
	i := slices.IndexFunc(all, func(n struct{ Type, Path string }) bool { return n.Type == "network" })
	if i < 0 {
		return "", errors.New("the sandbox has no network namespace of its own")
	}
	return all[i].Path, nil
}
