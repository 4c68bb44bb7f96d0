package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

const (
	unconfined = "unconfined"
	localhost  = "localhost/"
	hostMode   = "host"
)

// inContainer is a namespace mode: that of another container.
func inContainer(id string) string { return "container:" + id }

// user is Docker's user[:group].
func user(uid, gid *cri.Int64Value, name string) (string, error) {
	out := name
	if uid != nil {
		out = strconv.FormatInt(uid.Value, 10)
	}
	if gid == nil {
		return out, nil
	}
	if out == "" {
		return "", fmt.Errorf("%w: run_as_group without run_as_user or run_as_username", errdefs.ErrInvalidArgument)
	}
	return out + ":" + strconv.FormatInt(gid.Value, 10), nil
}

func groups(ids []int64) []string {
	var out []string
	for _, id := range ids {
		out = append(out, strconv.FormatInt(id, 10))
	}
	return out
}

// seccomp is the option for a profile. None at all means unconfined (CRI's own
// rule); path is the older form of the same request.
func seccomp(p *cri.SecurityProfile, path string) ([]string, error) {
	p, err := profile(p, path)
	if err != nil {
		return nil, err
	}
	switch {
	case p == nil, p.ProfileType == cri.SecurityProfile_Unconfined:
		return []string{"seccomp=" + unconfined}, nil
	case p.ProfileType == cri.SecurityProfile_RuntimeDefault:
		return nil, nil
	}
	raw, err := hostfile.Read(p.LocalhostRef, hostfile.Limit)
	if err != nil {
		return nil, fmt.Errorf("%w: seccomp profile: %w", errdefs.ErrInvalidArgument, err)
	}
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		return nil, fmt.Errorf("%w: seccomp profile %s: %w", errdefs.ErrInvalidArgument, p.LocalhostRef, err)
	}
	return []string{"seccomp=" + text.String()}, nil
}

// apparmor is the option for a profile; none leaves Docker's default.
func apparmor(p *cri.SecurityProfile, path string) ([]string, error) {
	p, err := profile(p, path)
	if err != nil {
		return nil, err
	}
	switch {
	case p == nil, p.ProfileType == cri.SecurityProfile_RuntimeDefault:
		return nil, nil
	case p.ProfileType == cri.SecurityProfile_Unconfined:
		return []string{"apparmor=" + unconfined}, nil
	}
	return []string{"apparmor=" + strings.TrimPrefix(p.LocalhostRef, localhost)}, nil
}

// profile reads the older form where the newer one is missing.
func profile(p *cri.SecurityProfile, path string) (*cri.SecurityProfile, error) {
	if p != nil {
		return p, nil
	}
	switch {
	case path == "":
		return nil, nil
	case path == unconfined:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}, nil
	case path == "runtime/default", path == "docker/default":
		return &cri.SecurityProfile{}, nil
	case strings.HasPrefix(path, localhost):
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: strings.TrimPrefix(path, localhost)}, nil
	}
	return nil, fmt.Errorf("%w: security profile %q", errdefs.ErrInvalidArgument, path)
}

// selinux are the label options.
func selinux(o *cri.SELinuxOption) []string {
	var out []string
	for _, p := range [][2]string{{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", o.GetLevel()}} {
		if p[1] != "" {
			out = append(out, "label="+p[0]+":"+p[1])
		}
	}
	return out
}

// cgroupParent is the parent in the form of Docker's cgroup driver: a path for
// cgroupfs, a slice's name for systemd.
func cgroupParent(path, driver string) string {
	if driver == SystemdDriver && path != "" {
		return filepath.Base(path)
	}
	return path
}

// userns is the mode of the user namespace. Docker has one mapping for all.
func userns(n *cri.UserNamespace) (container.UsernsMode, error) {
	switch {
	case n == nil:
		return "", nil
	case n.Mode == cri.NamespaceMode_NODE:
		return hostMode, nil
	}
	return "", fmt.Errorf("%w: a user namespace of the pod's own", errdefs.ErrNotImplemented)
}
