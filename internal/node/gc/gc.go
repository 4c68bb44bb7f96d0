// Package gc keeps a node's disk from filling up: it removes images that nothing
// uses once the disk is nearly full, and rotates the logs of containers that
// run. It knows the runtime, and no pod: what belongs to a pod goes with it.
package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/logs"
)

// Defaults, kubelet's.
const (
	ImageHigh   = 85
	ImageLow    = 80
	ImageMinAge = 2 * time.Minute
	ImagePeriod = 5 * time.Minute
	LogSize     = 10 << 20
	LogFiles    = 5
	logPeriod   = 10 * time.Second
)

// Config says when what is removed.
type Config struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient
	// High is from which use of the images' file system on, in %, images are
	// removed until it is Low; 0 removes none.
	High, Low int
	MinAge    time.Duration // of an image, since it was first seen
	Period    time.Duration // of images; 0 is ImagePeriod
	// LogSize is from which size on, in bytes, a log is put aside, LogFiles how
	// many files a log may have; 0 is the default.
	LogSize  int64
	LogFiles int
	Now      func() time.Time
	Log      *slog.Logger
}

// Collector lives in Run.
type Collector struct {
	conf Config
	seen map[string]times // of images
}

// times of an image, as far as this process has seen them.
type times struct{ first, used time.Time }

// New asks nothing yet.
func New(c Config) *Collector {
	c.Period = cmp.Or(c.Period, ImagePeriod)
	c.LogSize, c.LogFiles = cmp.Or(c.LogSize, LogSize), cmp.Or(c.LogFiles, LogFiles)
	return &Collector{conf: c, seen: map[string]times{}}
}

// Run collects until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	rotate, images := time.NewTicker(min(logPeriod, c.conf.Period)), time.NewTicker(c.conf.Period)
	defer rotate.Stop()
	defer images.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-rotate.C:
			err = c.rotate(ctx)
		case <-images.C:
			if c.conf.High > 0 {
				err = c.images(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			c.conf.Log.Warn("disk not cleaned: dead containers, logs or images stay until the next try", "err", err)
		}
	}
}

// rotate puts the logs aside that have become too long.
func (c *Collector) rotate(ctx context.Context) error {
	list, err := c.conf.Runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, one := range list.GetContainers() {
		st, err := c.conf.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: one.GetId()})
		if err != nil || st.GetStatus().GetLogPath() == "" {
			continue // it has gone, or has no log; what is wrong with the runtime the list tells
		}
		reopen := func() error {
			_, err := c.conf.Runtime.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: one.GetId()})
			return err
		}
		err = logs.Rotate(st.GetStatus().GetLogPath(), logs.Limits{Size: c.conf.LogSize, Files: c.conf.LogFiles}, c.conf.Now(), reopen)
		if err != nil && !ended(err) {
			errs = append(errs, fmt.Errorf("log of container %s: %w", one.GetId(), err))
		}
	}
	return errors.Join(errs...)
}

// ended tells an error of a container that does not run any more.
func ended(err error) bool {
	code := status.Code(err)
	return code == codes.NotFound || code == codes.FailedPrecondition
}

// images removes images that nothing uses, those first that were used least
// recently, when their file system is nearly full.
func (c *Collector) images(ctx context.Context) error {
	unused, err := c.unused(ctx)
	if err != nil {
		return err
	}
	excess, err := c.excess(ctx)
	if err != nil || excess <= 0 {
		return err
	}
	var freed int64
	var errs []error
	for _, i := range unused {
		if freed >= excess {
			break
		}
		if c.conf.Now().Sub(c.seen[i.GetId()].first) < c.conf.MinAge {
			continue
		}
		if _, err := c.conf.Images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: i.GetId()}}); err != nil {
			errs = append(errs, fmt.Errorf("remove image %s: %w", i.GetId(), err))
			continue
		}
		c.conf.Log.Info("image removed: the disk is nearly full and nothing uses it", "image", i.GetId(), "names", i.GetRepoTags(), "bytes", i.GetSize())
		freed += int64(i.GetSize()) //nolint:gosec // no image is that large
	}
	if freed < excess && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("the disk is fuller than %d %%: %d bytes of unused images removed, %d are too many", c.conf.High, freed, excess))
	}
	return errors.Join(errs...)
}

// unused lists the images that no container uses, in the order in which they
// are to go.
func (c *Collector) unused(ctx context.Context) ([]*cri.Image, error) {
	all, err := c.conf.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := c.conf.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	used := map[string]bool{}
	for _, one := range containers.GetContainers() {
		for _, name := range []string{one.GetImageId(), one.GetImageRef(), one.GetImage().GetImage()} {
			used[name] = true
		}
	}
	var out []*cri.Image
	seen := make(map[string]times, len(all.GetImages()))
	for _, i := range all.GetImages() {
		t, known := c.seen[i.GetId()]
		if !known {
			t.first = c.conf.Now()
		}
		names := slices.Concat([]string{i.GetId()}, i.GetRepoTags(), i.GetRepoDigests())
		switch {
		case slices.ContainsFunc(names, func(n string) bool { return used[n] }):
			t.used = c.conf.Now()
		case !i.GetPinned(): // the sandboxes' own is
			out = append(out, i)
		}
		seen[i.GetId()] = t
	}
	c.seen = seen
	slices.SortStableFunc(out, func(a, b *cri.Image) int {
		s, t := seen[a.GetId()], seen[b.GetId()]
		return cmp.Or(s.used.Compare(t.used), s.first.Compare(t.first))
	})
	return out, nil
}

// excess is how many bytes are too many on the images' file system; 0 when it
// is not as full as High.
func (c *Collector) excess(ctx context.Context) (int64, error) {
	info, err := c.conf.Images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil {
		return 0, fmt.Errorf("the images' file system: %w", err)
	}
	var most int64
	for _, fs := range info.GetImageFilesystems() {
		var s unix.Statfs_t
		if err := unix.Statfs(fs.GetFsId().GetMountpoint(), &s); err != nil {
			return 0, fmt.Errorf("statfs %s: %w", fs.GetFsId().GetMountpoint(), err)
		}
		// As df counts: what only root may use, or nobody, is no room.
		used, free := int64(s.Blocks-s.Bfree)*s.Bsize, int64(s.Bavail)*s.Bsize //nolint:gosec // no disk is that large
		if size := used + free; size > 0 && used*100 >= size*int64(c.conf.High) {
			most = max(most, used-size/100*int64(c.conf.Low))
		}
	}
	return most, nil
}
