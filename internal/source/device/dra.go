package device

import (
	"context"
	"errors"
	"fmt"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/core"
)

// Attributes by which a DRA driver tells network plugins of a device: what the
// annotation k8s.v1.cni.cncf.io/resourceName of a NAD may call it, and what
// plugins get as deviceID (Multus' documentation, "Dynamic Resource Allocation").
const (
	attrResource = "k8s.cni.cncf.io/resourceName"
	attrDevice   = "k8s.cni.cncf.io/deviceID"
)

// claimed puts the devices of one ResourceClaim into ids. A device whose driver
// publishes nothing goes by the name of its claim, with the names of its CDI
// devices for IDs, as Multus 4.3.0 has it. Kubelet repeats the CDI names of a
// claim's earlier devices with its later ones (cm/container_manager_linux.go,
// GetDynamicResources): they tell the devices of a claim only together.
func (k *Kubelet) claimed(ctx context.Context, claim *podresources.DynamicResource, ids bag) error {
	var errs []error
	for _, r := range claim.GetClaimResources() {
		resource, err := k.attribute(ctx, r, attrResource)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		id, err := k.attribute(ctx, r, attrDevice)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		switch {
		case resource != "" && id == "":
			errs = append(errs, fmt.Errorf("%s has the attribute %s = %q and no %s", nameOf(r), attrResource, resource, attrDevice))
		case resource != "":
			ids.add(resource, id)
		case id != "":
			ids.add(claim.GetClaimName(), id)
		default:
			ids.add(claim.GetClaimName(), cdiNames(r)...)
		}
	}
	return errors.Join(errs...)
}

// attribute is "" for what nobody publishes.
func (k *Kubelet) attribute(ctx context.Context, r *podresources.ClaimResource, name string) (string, error) {
	if k.slices == nil || r.GetDeviceName() == "" {
		return "", nil
	}
	v, err := k.slices.Attribute(ctx, r.GetDriverName(), r.GetPoolName(), r.GetDeviceName(), name)
	if errors.Is(err, core.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", nameOf(r), err)
	}
	return v, nil
}

// nameOf is a device in messages: driver, pool and name are unique together.
func nameOf(r *podresources.ClaimResource) string {
	return fmt.Sprintf("device %s/%s/%s", r.GetDriverName(), r.GetPoolName(), r.GetDeviceName())
}

// cdiNames are the device parts of fully qualified CDI names
// ("vendor.com/class=device").
func cdiNames(r *podresources.ClaimResource) []string {
	var out []string
	for _, d := range r.GetCdiDevices() {
		if _, name, ok := strings.Cut(d.GetName(), "="); ok {
			out = append(out, name)
		}
	}
	return out
}
