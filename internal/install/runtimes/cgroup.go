package runtimes

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// slice is where systemd keeps what it did not begin itself.
const slice = "system.slice"

// CgroupParent is the cgroup for pods that nobody has given one. With systemd's
// driver a runtime needs a slice: containerd hands a path of its own on else,
// which runc refuses. With cgroupfs the place is the runtime's choice, "".
func CgroupParent(ctx context.Context, service cri.RuntimeServiceClient) (string, error) {
	systemd, err := underSystemd(ctx, service)
	if err != nil {
		return "", fmt.Errorf("cgroup driver of the runtime: %w", err)
	}
	if systemd {
		return slice, nil
	}
	return "", nil
}

func underSystemd(ctx context.Context, service cri.RuntimeServiceClient) (bool, error) {
	c, err := service.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{})
	if err == nil {
		return c.GetLinux().GetCgroupDriver() == cri.CgroupDriver_SYSTEMD, nil
	}
	if status.Code(err) != codes.Unimplemented {
		return false, err
	}
	s, err := service.Status(ctx, &cri.StatusRequest{Verbose: true}) // containerd before 2.0
	if err != nil {
		return false, err
	}
	var config struct {
		Containerd struct {
			DefaultRuntimeName string
			Runtimes           map[string]struct{ Options struct{ SystemdCgroup bool } }
		}
		SystemdCgroup bool // as containerd had it at first
	}
	if text := s.GetInfo()["config"]; text != "" {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			return false, fmt.Errorf("read the configuration in the runtime's status: %w", err)
		}
	}
	usual := config.Containerd.Runtimes[config.Containerd.DefaultRuntimeName]
	return config.SystemdCgroup || usual.Options.SystemdCgroup, nil
}
