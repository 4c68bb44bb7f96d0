package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/core"
)

// Given are devices of one resource that a pod has.
type Given struct {
	Pod      core.Pod // of the checkpoint: its UID alone
	Resource string
	IDs      []string
}

// Given lists the devices that kubelet's device plugins gave to all pods; it is Allocated
// of all of them, without claims. core.ErrNotFound: there never was a kubelet.
func (k *Kubelet) Given(ctx context.Context) ([]Given, error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var out []Given
	err := k.dial(func(c podresources.PodResourcesListerClient) error {
		all, err := c.List(ctx, &podresources.ListPodResourcesRequest{})
		for _, p := range all.GetPodResources() {
			for _, container := range p.GetContainers() {
				for _, d := range container.GetDevices() {
					out = append(out, Given{core.Pod{Namespace: p.GetNamespace(), Name: p.GetName()}, d.GetResourceName(), d.GetDeviceIds()})
				}
			}
		}
		return err
	})
	if errors.Is(err, errSilent) {
		return k.written()
	}
	if err != nil {
		return nil, fmt.Errorf("devices of pods at %s: %w", k.socket, err)
	}
	return out, nil
}

// written is Given of the checkpoint.
func (k *Kubelet) written() ([]Given, error) {
	raw, err := os.ReadFile(k.checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", k.checkpoint, core.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	var c checkpoint
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", k.checkpoint, err)
	}
	var out []Given
	for _, e := range c.Data.PodDeviceEntries {
		ids, err := deviceIDs(e.DeviceIDs)
		if err != nil {
			return nil, fmt.Errorf("%s: %s of pod UID %s: %w", k.checkpoint, e.ResourceName, e.PodUID, err)
		}
		out = append(out, Given{core.Pod{Name: "of UID " + e.PodUID, UID: e.PodUID}, e.ResourceName, ids})
	}
	return out, nil
}
