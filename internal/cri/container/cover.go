package container

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/spec"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// mountPoints lists this machine's, if one of the mounts needs to know them: it
// is read-only with all that is mounted below. Its source is made a path without
// links, as mount points are.
func mountPoints(mounts []*cri.Mount) ([]string, error) {
	needed := false
	for _, m := range mounts {
		if !m.RecursiveReadOnly {
			continue
		}
		needed = true
		if real, err := filepath.EvalSymlinks(m.HostPath); err == nil {
			m.HostPath = real
		}
	}
	if !needed {
		return nil, nil
	}
	return sysfs.MountPoints()
}

// covered gives the id of a pod's container that may be started. It may not when
// something was mounted below a recursively read-only mount after the container
// was created: that would be writable.
func (s *Service) covered(ctx context.Context, id string) (string, error) {
	c, err := s.inspect(ctx, id)
	if err != nil {
		return "", err
	}
	covers, err := label.Covers(c.Config.Labels)
	if err != nil || len(covers) == 0 {
		return c.ID, err
	}
	points, err := sysfs.MountPoints()
	if err != nil {
		return "", err
	}
	for _, cover := range covers {
		if now := spec.Below(cover.Source, points); !slices.Equal(now, cover.Below) {
			return "", fmt.Errorf("%w: what is mounted below %s is not what it was when the container was created: %v", errdefs.ErrFailedPrecondition, cover.Source, now)
		}
	}
	return c.ID, nil
}
