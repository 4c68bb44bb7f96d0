package image_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/registry"
	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/enginetest"
	"github.com/fairlead/fairlead/internal/cri/image"
)

// bed is a service over an engine of its own.
type bed struct {
	*image.Service
	t *testing.T
	e *enginetest.Engine
}

func newBed(t *testing.T, pinned string) bed {
	e := enginetest.Start(t)
	s, err := image.New(e.Client, pinned)
	require.NoError(t, err)
	return bed{s, t, e}
}

// push makes an image with its own USER and brings it to a registry as name.
// The engine keeps nothing of it.
func (b bed) push(name, user string, auth registry.AuthConfig) (id string) {
	b.t.Helper()
	c := b.e.Create(func(o *docker.ContainerCreateOptions) { o.Config.User = user }, "true")
	made, err := b.e.ContainerCommit(b.t.Context(), c, docker.ContainerCommitOptions{
		Reference: name, Changes: []string{"LABEL name=" + strings.ReplaceAll(name, ":", "_")},
	})
	require.NoError(b.t, err)
	_, err = b.e.ContainerRemove(b.t.Context(), c, docker.ContainerRemoveOptions{})
	require.NoError(b.t, err)
	encoded, err := authconfig.Encode(auth)
	require.NoError(b.t, err)
	out, err := b.e.ImagePush(b.t.Context(), name, docker.ImagePushOptions{RegistryAuth: encoded})
	require.NoError(b.t, err)
	said, err := io.ReadAll(out)
	require.NoError(b.t, err)
	require.NotContains(b.t, string(said), "errorDetail")
	_, err = b.RemoveImage(b.t.Context(), &runtime.RemoveImageRequest{Image: spec(name)})
	require.NoError(b.t, err)
	return made.ID
}

func spec(name string) *runtime.ImageSpec { return &runtime.ImageSpec{Image: name} }

func (b bed) pull(name string, auth *runtime.AuthConfig) (string, error) {
	res, err := b.PullImage(b.t.Context(), &runtime.PullImageRequest{Image: spec(name), Auth: auth})
	return res.GetImageRef(), err
}

func (b bed) status(name string) *runtime.Image {
	b.t.Helper()
	res, err := b.ImageStatus(b.t.Context(), &runtime.ImageStatusRequest{Image: spec(name)})
	require.NoError(b.t, err)
	require.Empty(b.t, res.Info)
	return res.Image
}

func (b bed) list(name string) []*runtime.Image {
	b.t.Helper()
	res, err := b.ListImages(b.t.Context(), &runtime.ListImagesRequest{Filter: &runtime.ImageFilter{Image: spec(name)}})
	require.NoError(b.t, err)
	return res.Images
}

func TestImages(t *testing.T) {
	b := newBed(t, "127.0.0.1:5001/pause:3")
	reg := b.e.Registry("", "")
	id := b.push(reg+"/one:1", "1002:50", registry.AuthConfig{})
	b.push(reg+"/pause:3", "daemon", registry.AuthConfig{})
	require.Nil(t, b.status(reg+"/one:1"), "absent is no error")
	require.Empty(t, b.list(reg+"/one:1"))

	t.Run("pull by tag", func(t *testing.T) {
		ref, err := b.pull(reg+"/one:1", nil)
		require.NoError(t, err)
		require.Equal(t, id, ref)
		again, err := b.pull(reg+"/one:1", nil)
		require.NoError(t, err)
		require.Equal(t, ref, again)
	})

	one := b.status(reg + "/one:1")
	t.Run("status", func(t *testing.T) {
		require.Equal(t, id, one.Id)
		require.Equal(t, []string{reg + "/one:1"}, one.RepoTags)
		require.Len(t, one.RepoDigests, 1)
		require.Positive(t, one.Size)
		require.Equal(t, int64(1002), one.Uid.GetValue())
		require.Empty(t, one.Username)
		require.False(t, one.Pinned)
		for _, name := range []string{id, strings.TrimPrefix(id, "sha256:"), strings.TrimPrefix(id, "sha256:")[:12], one.RepoDigests[0],
			reg + "/one:1@" + strings.Split(one.RepoDigests[0], "@")[1]} {
			require.Equal(t, one, b.status(name), name)
			require.Equal(t, []*runtime.Image{one}, b.list(name), name)
		}
		res, err := b.ImageStatus(t.Context(), &runtime.ImageStatusRequest{Image: spec(id), Verbose: true})
		require.NoError(t, err)
		var info struct {
			ImageSpec struct{ Config struct{ User string } }
		}
		require.NoError(t, json.Unmarshal([]byte(res.Info["info"]), &info))
		require.Equal(t, "1002:50", info.ImageSpec.Config.User)
	})

	t.Run("the sandbox image is pinned", func(t *testing.T) {
		_, err := b.pull(reg+"/pause:3", nil)
		require.NoError(t, err)
		pause := b.status(reg + "/pause:3")
		require.True(t, pause.Pinned)
		require.Nil(t, pause.Uid)
		require.Equal(t, "daemon", pause.Username)
		require.Len(t, b.list(""), 4, "one, pause, and the two that every engine has")
	})

	t.Run("remove, then pull by digest", func(t *testing.T) {
		for _, tag := range []string{reg + "/one:2", "other/one:latest"} {
			_, err := b.e.ImageTag(t.Context(), docker.ImageTagOptions{Source: id, Target: tag})
			require.NoError(t, err)
		}
		require.Len(t, b.status(id).RepoTags, 3)
		require.NotNil(t, b.status("other/one"))
		for range 2 {
			_, err := b.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: spec(id)})
			require.NoError(t, err)
		}
		require.Nil(t, b.status(id))
		require.Nil(t, b.status("other/one"))

		ref, err := b.pull(one.RepoDigests[0], nil)
		require.NoError(t, err)
		require.Equal(t, id, ref)
		got := b.status(ref)
		require.Empty(t, got.RepoTags)
		require.Equal(t, one.RepoDigests, got.RepoDigests)
		listed := b.list("")
		require.Contains(t, listed, got, "the list says the same as the status")
	})

	t.Run("an image in use keeps all its names", func(t *testing.T) {
		_, err := b.pull(reg+"/one:1", nil)
		require.NoError(t, err)
		c := b.e.Create(func(o *docker.ContainerCreateOptions) { o.Config.Image = id }, "true")
		before := b.status(id)
		_, err = b.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: spec(reg + "/one:1")})
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.ErrorContains(t, err, c)
		require.Equal(t, before, b.status(id))
	})
}

func TestPullWithCredentials(t *testing.T) {
	b := newBed(t, "")
	reg := b.e.Registry("anna", "se:cret")
	name := reg + "/private:1"
	id := b.push(name, "", registry.AuthConfig{Username: "anna", Password: "se:cret"})

	_, err := b.pull(name, nil)
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	require.ErrorContains(t, err, name)
	_, err = b.pull(name, &runtime.AuthConfig{Username: "anna", Password: "wrong"})
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	_, err = b.pull(name, &runtime.AuthConfig{Auth: "anna:se:cret"})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.NotContains(t, err.Error(), "se:cret")

	for _, auth := range []*runtime.AuthConfig{
		{Username: "anna", Password: "se:cret"},
		{Auth: base64.StdEncoding.EncodeToString([]byte("anna:se:cret"))},
		{Username: "anna", Password: "se:cret", ServerAddress: "http://" + reg},
	} {
		ref, err := b.pull(name, auth)
		require.NoError(t, err)
		require.Equal(t, id, ref)
		_, err = b.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: spec(name)})
		require.NoError(t, err)
	}
}

func TestRefusals(t *testing.T) {
	b := newBed(t, "")
	reg := b.e.Registry("", "")
	pull := func(name string) error {
		_, err := b.pull(name, nil)
		return err
	}
	for name, code := range map[string]codes.Code{
		"":                                   codes.InvalidArgument,
		"UPPER/case":                         codes.InvalidArgument,
		"sha256:" + strings.Repeat("ab", 32): codes.InvalidArgument,
		reg + "/nothing:1":                   codes.NotFound,
		reg + "/one@sha256:" + strings.Repeat("ab", 32): codes.NotFound,
	} {
		require.Equal(t, code, status.Code(pull(name)), "%q: %v", name, pull(name))
	}
	err := pull("127.0.0.1:1/one:1")
	require.Equal(t, codes.Unknown, status.Code(err))
	require.True(t, strings.HasPrefix(status.Convert(err).Message(), "RegistryUnavailable: "), "%v", err)

	_, err = b.ImageStatus(t.Context(), &runtime.ImageStatusRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	_, err = b.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: spec("none/of:these")})
	require.NoError(t, err)
	_, err = image.New(b.e.Client, "NOT A NAME")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestImageFsInfo(t *testing.T) {
	b := newBed(t, "")
	measure := func(s *image.Service) *runtime.FilesystemUsage {
		res, err := s.ImageFsInfo(t.Context(), &runtime.ImageFsInfoRequest{})
		require.NoError(t, err)
		require.Len(t, res.ImageFilesystems, 1)
		require.Equal(t, res.ImageFilesystems, res.ContainerFilesystems)
		return res.ImageFilesystems[0]
	}
	before := measure(b.Service)
	info, err := b.e.Info(t.Context(), docker.InfoOptions{})
	require.NoError(t, err)
	require.Equal(t, info.Info.DockerRootDir, before.FsId.Mountpoint)
	require.Positive(t, before.Timestamp)
	require.Equal(t, before, measure(b.Service), "one walk serves several questions")

	const written = 8 << 20
	id := b.e.Run(nil, "sh", "-c", "dd if=/dev/zero of=/big bs=1M count=8; for i in $(seq 100); do : >/f$i; done")
	wait := b.e.ContainerWait(t.Context(), id, docker.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	require.Zero(t, (<-wait.Result).StatusCode)
	another, err := image.New(b.e.Client, "")
	require.NoError(t, err)
	after := measure(another)
	require.GreaterOrEqual(t, after.UsedBytes.Value, before.UsedBytes.Value+written)
	require.GreaterOrEqual(t, after.InodesUsed.Value, before.InodesUsed.Value+101)
}
