// Package image is CRI's ImageService over Docker Engine: what kubelet asks
// about images is answered from the engine's own store, of which nothing is
// remembered here but the last measurement of its size. It must not know
// containers or sandboxes, beyond which images they use.
package image

import (
	"context"
	"sync"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/system"
	docker "github.com/moby/moby/client"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// Service implements runtime.ImageServiceServer. It is safe for concurrent use.
type Service struct {
	runtime.UnimplementedImageServiceServer

	cli    *docker.Client
	pinned reference.Named // nil: none

	measuring sync.Mutex // held during a walk through the engine's files
	measured  usage
}

// New makes the service. The image that sandboxes are made of is reported as
// pinned, so that kubelet's garbage collection spares it; "" pins none.
func New(cli *docker.Client, sandboxImage string) (*Service, error) {
	s := &Service{cli: cli}
	if sandboxImage == "" {
		return s, nil
	}
	named, err := parse(sandboxImage)
	if err != nil {
		return nil, err
	}
	s.pinned = named
	return s, nil
}

// ListImages gives the images that filter.image names, in whatever way
// ImageStatus understands, or all of them.
func (s *Service) ListImages(ctx context.Context, req *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	images, err := s.list(ctx, req.GetFilter())
	return &runtime.ListImagesResponse{Images: images}, err
}

// streamed is how many images one message of StreamImages carries: a few
// hundred kB where gRPC allows 4 MiB.
const streamed = 500

// StreamImages is ListImages in messages of bounded size (KEP-5825).
func (s *Service) StreamImages(req *runtime.StreamImagesRequest, to grpc.ServerStreamingServer[runtime.StreamImagesResponse]) error {
	images, err := s.list(to.Context(), req.GetFilter())
	for err == nil && len(images) > 0 {
		n := min(streamed, len(images))
		err = to.Send(&runtime.StreamImagesResponse{Images: images[:n]})
		images = images[n:]
	}
	return err
}

func (s *Service) list(ctx context.Context, filter *runtime.ImageFilter) ([]*runtime.Image, error) {
	if name := filter.GetImage().GetImage(); name != "" {
		found, ok, err := s.find(ctx, name)
		if err != nil || !ok {
			return nil, err
		}
		return []*runtime.Image{s.fromInspect(found)}, nil
	}
	res, err := s.cli.ImageList(ctx, docker.ImageListOptions{})
	if err != nil {
		return nil, fault.Of(err, "list images")
	}
	return s.fromList(ctx, res.Items)
}

// fromList asks for each image again: the list does not tell the user, and
// kubelet compares what both say. One that goes away meanwhile is left out.
func (s *Service) fromList(ctx context.Context, items []image.Summary) ([]*runtime.Image, error) {
	out := make([]*runtime.Image, 0, len(items))
	for _, i := range items {
		found, ok, err := s.inspect(ctx, i.ID)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, s.fromInspect(found))
		}
	}
	return out, nil
}

// ImageStatus describes the image of a tag, digest or ID. An image that is not
// there is no error: the answer's image is nil.
func (s *Service) ImageStatus(ctx context.Context, req *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	found, ok, err := s.find(ctx, req.GetImage().GetImage())
	if err != nil || !ok {
		return &runtime.ImageStatusResponse{}, err
	}
	out := &runtime.ImageStatusResponse{Image: s.fromInspect(found)}
	if req.GetVerbose() {
		out.Info, err = verbose(found)
	}
	return out, err
}

// RemoveImage takes away every name of the image and the image. What is not
// there is removed already. An image that a container uses stays whole, with
// all its names: FailedPrecondition.
func (s *Service) RemoveImage(ctx context.Context, req *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error) {
	name := req.GetImage().GetImage()
	found, ok, err := s.find(ctx, name)
	if err == nil && ok {
		err = s.remove(ctx, found)
	}
	if err != nil {
		return nil, fault.Of(err, "remove image %s", name)
	}
	return &runtime.RemoveImageResponse{}, nil
}

// engine is what of Docker Engine's description this package needs.
func (s *Service) engine(ctx context.Context) (system.Info, error) {
	res, err := s.cli.Info(ctx, docker.InfoOptions{})
	return res.Info, fault.Of(err, "ask Docker where it keeps images")
}

// users are the containers, running or not, that are made of the image.
func (s *Service) users(ctx context.Context, id string) ([]container.Summary, error) {
	res, err := s.cli.ContainerList(ctx, docker.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	var out []container.Summary
	for _, c := range res.Items {
		if c.ImageID == id {
			out = append(out, c)
		}
	}
	return out, nil
}
