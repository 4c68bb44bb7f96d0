package container

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/label"
	"github.com/fairlead/fairlead/internal/cri/spec"
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
	return machineMounts()
}

// machineMounts reads proc(5) mountinfo: the fifth field is the mount point, with
// spaces and the like in octal.
func machineMounts() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []string
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 4 {
			out = append(out, unescape(f[4]))
		}
	}
	return out, nil
}

func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// covered refuses to start a container when something was mounted below a
// recursively read-only mount after it was created: that would be writable.
func (s *Service) covered(ctx context.Context, id string) error {
	c, err := s.inspect(ctx, id)
	if err != nil {
		return err
	}
	covers, err := label.Covers(c.Config.Labels)
	if err != nil || len(covers) == 0 {
		return err
	}
	points, err := machineMounts()
	if err != nil {
		return err
	}
	for _, cover := range covers {
		if now := spec.Below(cover.Source, points); !slices.Equal(now, cover.Below) {
			return fmt.Errorf("%w: what is mounted below %s is not what it was when the container was created: %v", errdefs.ErrFailedPrecondition, cover.Source, now)
		}
	}
	return nil
}
