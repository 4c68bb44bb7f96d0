package image

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	docker "github.com/moby/moby/client"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// details is an image as the engine describes it, also in its own words.
type details struct {
	image.InspectResponse
	raw []byte
}

// find looks an image up by any of its names or its ID.
func (s *Service) find(ctx context.Context, name string) (details, bool, error) {
	ways, err := candidates(name)
	if err != nil {
		return details{}, false, err
	}
	for _, way := range ways {
		if found, ok, err := s.inspect(ctx, way); ok || err != nil {
			return found, ok, err
		}
	}
	return details{}, false, nil
}

func (s *Service) inspect(ctx context.Context, key string) (details, bool, error) {
	raw := &bytes.Buffer{}
	res, err := s.cli.ImageInspect(ctx, key, docker.ImageInspectWithRawResponse(raw))
	if errdefs.IsNotFound(err) {
		return details{}, false, nil
	}
	if err != nil {
		return details{}, false, fault.Of(err, "inspect image %s", key)
	}
	return details{res.InspectResponse, raw.Bytes()}, true, nil
}

func (s *Service) fromInspect(d details) *runtime.Image {
	out := &runtime.Image{
		Id:          d.ID,
		RepoTags:    named(d.RepoTags),
		RepoDigests: named(d.RepoDigests),
		// CRI wants more than 0 bytes; an image of no files has its description.
		Size:   uint64(max(d.Size, 1)),
		Pinned: s.isPinned(d),
	}
	if d.Config != nil {
		out.Uid, out.Username = user(d.Config.User)
	}
	return out
}

// named leaves out "<none>:<none>" and "<none>@<none>", by which the engine
// says that there is no name.
func named(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, "<none>") })
}

// user splits USER of an image: "uid[:gid]" or "name[:group]". CRI has one of
// uid and name; the group is found by the engine itself.
func user(config string) (uid *runtime.Int64Value, name string) {
	config, _, _ = strings.Cut(config, ":")
	if config == "" {
		return nil, ""
	}
	if n, err := strconv.ParseInt(config, 10, 64); err == nil {
		return &runtime.Int64Value{Value: n}, ""
	}
	return nil, config
}

// isPinned compares in full form: the engine shortens names of docker.io.
func (s *Service) isPinned(d details) bool {
	if s.pinned == nil {
		return false
	}
	for _, n := range slices.Concat(d.RepoTags, d.RepoDigests) {
		if parsed, err := parse(n); err == nil && parsed.String() == s.pinned.String() {
			return true
		}
	}
	return false
}

// verbose is the engine's own description, in the shape that crictl prints:
// one key "info" with JSON.
func verbose(d details) (map[string]string, error) {
	info, err := json.Marshal(map[string]any{
		"imageSpec": map[string]any{"config": d.Config, "rootfs": d.RootFS, "architecture": d.Architecture, "os": d.Os},
		"docker":    json.RawMessage(d.raw),
	})
	if err != nil {
		return nil, fault.Of(err, "describe image %s", d.ID)
	}
	return map[string]string{"info": string(info)}, nil
}
