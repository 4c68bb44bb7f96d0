package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/internal/core"
)

// recorded reads the pod's devices from the checkpoint in which kubelet's
// device manager keeps them: kubelets before 1.15 have no socket, and a
// runtime may call while kubelet restarts. The file's checksum is kubelet's
// own affair: it covers Go's way to print structures (k8s.io/kubernetes,
// checkpointmanager/checksum). Claims of DRA are not in it.
func (k *Kubelet) recorded(p core.Pod, silence error) (map[string][]string, error) {
	raw, err := os.ReadFile(k.checkpoint)
	if errors.Is(err, fs.ErrNotExist) || silent(err) {
		return nil, &core.Error{
			Code: core.CodeDevice, Msg: "devices of pod " + p.String() + ": no kubelet is known here",
			Details: fmt.Sprintf("%v; %s does not exist either: name kubelet's folder with --kubelet-root", silence, k.checkpoint),
			Err:     core.ErrNotFound,
		}
	}
	if err != nil {
		return nil, core.WithCode(core.CodeIO, "kubelet's checkpoint", err)
	}
	if p.UID == "" {
		return nil, core.Errorf(core.CodeDevice, "devices of pod %s: kubelet's checkpoint knows pods by UID, and neither K8S_POD_UID nor the pod has one", p)
	}
	ids, err := parseCheckpoint(raw, p.UID)
	return ids, core.WithCode(core.CodeDecode, "kubelet's checkpoint "+k.checkpoint, err)
}

// checkpoint is the part of kubelet_internal_checkpoint that says who has what
// (cm/devicemanager/checkpoint, checkpointData).
type checkpoint struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID       string
			ResourceName string
			DeviceIDs    json.RawMessage
		}
	}
}

func parseCheckpoint(raw []byte, uid string) (map[string][]string, error) {
	var c checkpoint
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, err
	}
	ids := bag{}
	for _, e := range c.Data.PodDeviceEntries {
		if e.PodUID != uid {
			continue
		}
		list, err := deviceIDs(e.DeviceIDs)
		if err != nil {
			return nil, fmt.Errorf("%s of pod UID %s: %w", e.ResourceName, uid, err)
		}
		ids.add(e.ResourceName, list...)
	}
	return ids.done(), nil
}

// deviceIDs reads both forms of the list: by NUMA node since kubelet 1.20,
// plain before.
func deviceIDs(raw json.RawMessage) ([]string, error) {
	var plain []string
	if json.Unmarshal(raw, &plain) == nil {
		return plain, nil
	}
	var byNode map[string][]string
	if err := json.Unmarshal(raw, &byNode); err != nil {
		return nil, fmt.Errorf("DeviceIDs: %w", err)
	}
	for _, ids := range byNode {
		plain = append(plain, ids...)
	}
	return plain, nil
}
