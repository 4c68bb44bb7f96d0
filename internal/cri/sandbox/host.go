package sandbox

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"

	"github.com/fairlead/fairlead/internal/netplugin"
)

var _ netplugin.Host = (*Service)(nil)

// GetNetNS implements netplugin.Host.
func (s *Service) GetNetNS(ctx context.Context, id string) (string, error) {
	c, err := s.inspect(ctx, id)
	if errdefs.IsNotFound(err) {
		return "", netplugin.ErrNoNetns
	}
	if err != nil {
		return "", err
	}
	path := netnsOf(c)
	if path == "" {
		return "", netplugin.ErrNoNetns
	}
	return path, nil
}

// GetPodPortMappings implements netplugin.Host.
func (s *Service) GetPodPortMappings(id string) []netplugin.PortMapping {
	r, _ := s.Records.Get(id)
	return r.Ports
}

// pod is what the network is told of a sandbox: its record, or what Docker's
// labels say.
func (s *Service) pod(c container.InspectResponse) netplugin.Pod {
	if r, ok := s.Records.Get(c.ID); ok {
		return r.Pod
	}
	return fromEngine(c.ID, c).Pod
}
