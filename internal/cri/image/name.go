package image

import (
	"regexp"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shortID is what may be the beginning of an image's ID, as crictl shows it.
var shortID = regexp.MustCompile(`^[0-9a-f]{4,64}$`)

// parse reads an image's name as Docker does: "busybox" is
// docker.io/library/busybox:latest. A digest outweighs a tag beside it.
func parse(name string) (reference.Named, error) {
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "the request names no image")
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "image %q: %v", name, err)
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return reference.TagNameOnly(named), nil
	}
	// The engine keeps "name@digest" and finds no "name:tag@digest".
	canonical, err := reference.WithDigest(reference.TrimNamed(named), digested.Digest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "image %q: %v", name, err)
	}
	return canonical, nil
}

// isID tells a whole ID from a name: "sha256:<64 digits>" would also be a tag
// of a repository sha256, but 64 hexadecimal digits alone are no name.
func isID(name string) bool {
	_, err := digest.Parse(name)
	return err == nil || len(name) == 64 && shortID.MatchString(name)
}

// candidates are the ways to ask the engine for an image, the likeliest first.
// The engine would take "cafe" for an ID that starts so before it thinks of a
// repository: names are asked for in full.
func candidates(name string) ([]string, error) {
	if isID(name) {
		return []string{name}, nil
	}
	named, err := parse(name)
	if err != nil {
		return nil, err
	}
	out := []string{named.String()}
	if shortID.MatchString(name) {
		out = append(out, name)
	}
	return out, nil
}
