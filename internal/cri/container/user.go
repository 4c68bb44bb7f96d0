package container

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// strict tells that a container's groups are those of the request alone.
func strict(c *cri.ContainerConfig) bool {
	return c.GetLinux().GetSecurityContext().GetSupplementalGroupsPolicy() == cri.SupplementalGroupsPolicy_Strict
}

// strictly makes sure that the image adds no groups to a container that was
// created. Docker leaves them out when the user is given with a group; the user's
// own group is in the image, which can be read through the container alone.
func (s *Service) strictly(ctx context.Context, id string, o client.ContainerCreateOptions) (string, error) {
	c, err := s.inspect(ctx, id)
	if err != nil {
		return "", err
	}
	user := c.Config.User // with the image's, where the request has none
	if strings.Contains(user, ":") {
		return id, nil
	}
	passwd, err := s.read(ctx, id, "/etc/passwd")
	if err != nil {
		return "", err
	}
	o.Config.User = withGroup(user, passwd)
	if _, err := s.Docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true}); err != nil {
		return "", err
	}
	return s.make(ctx, o)
}

// read gives a file of a container; "" for one that is not there.
func (s *Service) read(ctx context.Context, id, path string) (string, error) {
	r, err := s.Docker.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: path})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Content.Close()
	files := tar.NewReader(r.Content)
	if _, err := files.Next(); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(files, 1<<20))
	return string(b), err
}

// withGroup adds the group of a user, by name or number, from passwd(5). One that
// is not listed has group 0, as everywhere.
func withGroup(user, passwd string) string {
	if user == "" {
		user = "0"
	}
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 4 && (f[0] == user || f[2] == user) {
			return user + ":" + f[3]
		}
	}
	return user + ":0"
}

// userOf reads as whom a container's first process runs; nil for one that has
// none (proc(5), status).
func userOf(pid int) *cri.ContainerUser {
	if pid == 0 {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	fields := map[string][]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, rest, _ := strings.Cut(lines.Text(), ":")
		if key == "Uid" || key == "Gid" || key == "Groups" {
			fields[key] = numbers(rest)
		}
	}
	if len(fields["Uid"]) == 0 || len(fields["Gid"]) == 0 {
		return nil
	}
	return &cri.ContainerUser{Linux: &cri.LinuxContainerUser{
		Uid: fields["Uid"][0], Gid: fields["Gid"][0], SupplementalGroups: fields["Groups"],
	}}
}

func numbers(s string) []int64 {
	var out []int64
	for _, f := range strings.Fields(s) {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil {
			out = append(out, n)
		}
	}
	return out
}
