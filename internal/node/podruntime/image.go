package podruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/pullsecret"
)

// image makes sure that the runtime has a container's image, as the pull policy
// says.
func (r *Runtime) image(ctx context.Context, w Want, c *v1.Container, config *cri.PodSandboxConfig) (*cri.Image, error) {
	spec := &cri.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image}
	if c.Image == "" {
		return nil, &Error{ReasonInvalidImage, fmt.Errorf("container %s names no image", c.Name)}
	}
	has, err := r.conf.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, &Error{ReasonInspectFailed, fmt.Errorf("image %s: %w", c.Image, err)}
	}
	present := has.GetImage() != nil
	switch {
	case present && c.ImagePullPolicy != v1.PullAlways:
		w.tell(c.Name, EventPulled, fmt.Sprintf("image %q is already on the node", c.Image))
		return has.GetImage(), nil
	case c.ImagePullPolicy == v1.PullNever:
		return nil, &Error{ReasonNeverPull, fmt.Errorf("image %s is not on the node and its pull policy is Never", c.Image)}
	}
	if err := r.pull(ctx, w, c.Name, &cri.PullImageRequest{Image: spec, SandboxConfig: config}); err != nil {
		return nil, err
	}
	if has, err = r.conf.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec}); err != nil {
		return nil, &Error{ReasonInspectFailed, fmt.Errorf("image %s: %w", c.Image, err)}
	}
	return has.GetImage(), nil
}

// pull has a delay of its own for each pod and image: the container's is for
// what has run.
func (r *Runtime) pull(ctx context.Context, w Want, container string, req *cri.PullImageRequest) error {
	image := req.GetImage().GetImage()
	key := pullKey(w.Pod.UID, image)
	if left := r.delay.pending(key); left > 0 {
		return &Error{ReasonPullBackOff, &later{fmt.Errorf("back-off pulling image %q", image), left}}
	}
	keys, errs := pullsecret.Of(w.Pod, r.conf.Objects, r.conf.Credentials...)
	for _, err := range errs {
		if errors.Is(err, object.ErrUnknown) {
			return &Error{ReasonPull, err}
		}
		w.warn(container, EventPullSecret, err.Error())
	}
	w.tell(container, EventPulling, fmt.Sprintf("pulling image %q", image))
	err := r.pullWith(ctx, req, keys.For(image))
	if err == nil {
		w.tell(container, EventPulled, fmt.Sprintf("pulled image %q", image))
		r.delay.forget(func(k string) bool { return k == key })
		return nil
	}
	if ctx.Err() != nil {
		return &Error{ReasonPull, fmt.Errorf("pull %s: %w", image, ctx.Err())}
	}
	left := r.delay.failed(key)
	return &Error{ReasonPull, &later{fmt.Errorf("pull %s: %w", image, err), left}}
}

// pullWith shows the registry one after the other, until it gives the image. Without
// any it is shown nothing. The error is that of the last try.
func (r *Runtime) pullWith(ctx context.Context, req *cri.PullImageRequest, keys []*cri.AuthConfig) error {
	if len(keys) == 0 {
		keys = []*cri.AuthConfig{nil}
	}
	var err error
	for _, req.Auth = range keys {
		if _, err = r.conf.Images.PullImage(ctx, req); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// later is a failure that is worth another try only after a while.
type later struct {
	error
	after time.Duration
}

func (l *later) Unwrap() error { return l.error }
