package image

import (
	"context"
	"slices"

	"github.com/containerd/errdefs"
	docker "github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// remove takes the names first, because the engine refuses to remove an ID that
// several repositories name. It asks for users before the first name goes: the
// engine would object only to the last one, and leave the image nameless.
func (s *Service) remove(ctx context.Context, d details) error {
	users, err := s.users(ctx, d.ID)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return status.Errorf(codes.FailedPrecondition, "container %s uses it (%d in all)", users[0].ID, len(users))
	}
	for _, name := range slices.Concat(named(d.RepoTags), named(d.RepoDigests)) {
		if err := s.untag(ctx, name); err != nil {
			return err
		}
	}
	return s.untag(ctx, d.ID)
}

// untag removes a name, and what of the image then has none. The last tag takes
// the digests and the image along, so later ones find nothing.
func (s *Service) untag(ctx context.Context, name string) error {
	_, err := s.cli.ImageRemove(ctx, name, docker.ImageRemoveOptions{PruneChildren: true})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	// Somebody else removes it at the same time: the engine then trips over what
	// it does not find any more, and calls that an error of its own.
	if _, known, ferr := s.find(ctx, name); ferr == nil && !known {
		return nil
	}
	return err
}
