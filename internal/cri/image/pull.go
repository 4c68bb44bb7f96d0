package image

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	docker "github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// PullImage fetches an image and answers with its ID, which is Image.id of
// ImageStatus (CRI 1.36 demands it). It ends with ctx; layers that came stay
// with the engine for the next attempt. Errors: InvalidArgument for a name that
// cannot be pulled, NotFound, Unauthenticated, and for a registry that does not
// answer Unknown with "RegistryUnavailable: ", by which kubelet knows it.
func (s *Service) PullImage(ctx context.Context, req *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if isID(name) {
		return nil, status.Errorf(codes.InvalidArgument, "pull image %s: an ID names no registry", name)
	}
	ref, err := parse(name)
	if err != nil {
		return nil, err
	}
	auth, err := credentials(req.GetAuth())
	if err != nil {
		return nil, fault.Of(err, "pull image %s", ref)
	}
	if err := s.pull(ctx, ref, auth); err != nil {
		return nil, refused(err, ref)
	}
	got, ok, err := s.inspect(ctx, ref.String())
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, status.Errorf(codes.Aborted, "pull image %s: it was removed as soon as it was there", ref)
	}
	return &runtime.PullImageResponse{ImageRef: got.ID}, nil
}

// pull returns when the engine has the image. An error may come as the answer
// or, once progress was reported, inside the stream.
func (s *Service) pull(ctx context.Context, ref reference.Named, auth string) error {
	stream, err := s.cli.ImagePull(ctx, ref.String(), docker.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	return stream.Wait(ctx)
}

// credentials encodes what kubelet found for the registry. The engine reads no
// "auth" (base64 of user:password, as in config.json): it is taken apart here.
func credentials(a *runtime.AuthConfig) (string, error) {
	if a == nil {
		return "", nil
	}
	out := registry.AuthConfig{
		Username: a.GetUsername(), Password: a.GetPassword(), ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(),
	}
	if a.GetAuth() != "" && out.Username == "" {
		// The error must not show the secret, so the decoder's is not passed on.
		both, err := base64.StdEncoding.DecodeString(a.GetAuth())
		user, password, ok := strings.Cut(strings.TrimRight(string(both), "\x00"), ":")
		if err != nil || !ok {
			return "", status.Error(codes.InvalidArgument, `auth is not base64 of "user:password"`)
		}
		out.Username, out.Password = user, password
	}
	encoded, err := authconfig.Encode(out)
	if err != nil {
		return "", status.Error(codes.InvalidArgument, "the credentials cannot be encoded")
	}
	return encoded, nil
}

// words that the engine gives no code for: most of what a registry refuses comes
// as "500" or within the stream without any.
var words = []struct {
	contains string
	code     codes.Code
}{
	{"manifest unknown", codes.NotFound},
	{"no matching manifest", codes.NotFound},
	{"not found", codes.NotFound},
	{"no basic auth credentials", codes.Unauthenticated},
	{"unauthorized", codes.Unauthenticated},
	{"authentication required", codes.Unauthenticated},
	{"denied", codes.PermissionDenied},
	{"toomanyrequests", codes.ResourceExhausted},
	{"no space left on device", codes.ResourceExhausted},
}

// unreachable are the words of a registry that gave no answer.
var unreachable = []string{
	"connection refused", "no such host", "i/o timeout", "Client.Timeout exceeded", "no route to host",
	"network is unreachable", "TLS handshake timeout", "server gave HTTP response to HTTPS client",
	"server misbehaving", "unexpected EOF", ": EOF", "connection reset", "503 Service Unavailable", "502 Bad Gateway",
}

// refused is a failed pull as CRI tells it. Kubelet drops the code Unknown and
// then looks for the text of cri-api's own error at the beginning.
func refused(err error, ref reference.Named) error {
	code := fault.Code(err)
	if code != codes.Internal && code != codes.NotFound {
		return fault.Of(err, "pull image %s", ref)
	}
	text := err.Error()
	for _, w := range unreachable {
		if code == codes.Internal && strings.Contains(text, w) {
			return status.Errorf(codes.Unknown, "%v: pull image %s: %s", crierrors.ErrRegistryUnavailable, ref, text)
		}
	}
	for _, w := range words {
		if code == codes.Internal && strings.Contains(strings.ToLower(text), w.contains) {
			return status.Errorf(w.code, "pull image %s: %s", ref, text)
		}
	}
	return fault.Of(err, "pull image %s", ref)
}
