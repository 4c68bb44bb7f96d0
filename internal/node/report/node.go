package report

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/install/runtimes"
)

// maxPods is how many pods a node takes, as kubelet's default.
const maxPods = 110

// firstPause is how long a node waits until it tries again to register.
const firstPause = time.Second

// keepNode registers the node and keeps its status.
func (r *Reporter) keepNode(ctx context.Context) {
	pause := firstPause
	for {
		err := r.register(ctx)
		r.note.tell("node", err)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, nodePeriod)
	}
	var written time.Time
	for {
		wrote, err := r.writeNode(ctx, time.Since(written) >= nodeReport)
		if wrote {
			written = time.Now()
		}
		r.note.tell("node's status", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(nodePeriod):
		}
	}
}

// register makes the Node object, unless it is there.
func (r *Reporter) register(ctx context.Context) error {
	want, err := r.nodeNow(ctx)
	if err != nil {
		return err
	}
	has, err := r.client.node(ctx, r.conf.Node)
	if apierrors.IsNotFound(err) {
		has, err = r.client.createNode(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", r.conf.Node, err)
	}
	r.mu.Lock()
	r.node, r.labels = has.UID, maps.Clone(has.Labels)
	r.mu.Unlock()
	close(r.known)
	return nil
}

// writeNode writes the node's status if it is another, or must be written. A
// node that somebody deleted is registered anew.
func (r *Reporter) writeNode(ctx context.Context, must bool) (wrote bool, err error) {
	want, err := r.nodeNow(ctx)
	if err != nil {
		return false, err
	}
	has, err := r.client.node(ctx, r.conf.Node)
	if apierrors.IsNotFound(err) {
		has, err = r.client.createNode(ctx, want)
	}
	if err != nil {
		return false, fmt.Errorf("status of node %s: %w", r.conf.Node, err)
	}
	r.mu.Lock()
	r.node, r.labels = has.UID, maps.Clone(has.Labels)
	r.mu.Unlock()
	status := mergedNode(&has.Status, &want.Status)
	patch, err := statusPatch(has.UID, v1.Node{Status: has.Status}, v1.Node{Status: status}, v1.Node{})
	if err != nil || patch == nil && !must {
		return false, err
	}
	for i := range status.Conditions { // only now: the time alone is no change
		status.Conditions[i].LastHeartbeatTime = metav1.Now()
	}
	if patch, err = statusPatch(has.UID, v1.Node{Status: has.Status}, v1.Node{Status: status}, v1.Node{}); err != nil || patch == nil {
		return false, err
	}
	if _, err := r.client.patchNode(ctx, r.conf.Node, patch); err != nil {
		return false, fmt.Errorf("status of node %s: %w", r.conf.Node, err)
	}
	return true, nil
}

// mergedNode is our status in an object that others write to as well.
func mergedNode(had, want *v1.NodeStatus) v1.NodeStatus {
	out := *want.DeepCopy()
	for kind, q := range had.Capacity {
		if _, ours := out.Capacity[kind]; !ours {
			out.Capacity[kind] = q
		}
	}
	for kind, q := range had.Allocatable {
		if _, ours := out.Allocatable[kind]; !ours {
			out.Allocatable[kind] = q
		}
	}
	out.VolumesAttached, out.VolumesInUse, out.Config, out.Images = had.VolumesAttached, had.VolumesInUse, had.Config, had.Images
	out.RuntimeHandlers, out.Features, out.Phase = had.RuntimeHandlers, had.Features, had.Phase
	for _, was := range had.Conditions {
		i := slices.IndexFunc(out.Conditions, func(c v1.NodeCondition) bool { return c.Type == was.Type })
		switch {
		case i < 0:
			out.Conditions = append(out.Conditions, was)
		case out.Conditions[i].Status == was.Status:
			out.Conditions[i].LastTransitionTime = was.LastTransitionTime
			fallthrough
		default:
			out.Conditions[i].LastHeartbeatTime = was.LastHeartbeatTime
		}
	}
	return out
}

// nodeNow is the node as it is.
func (r *Reporter) nodeNow(ctx context.Context) (*v1.Node, error) {
	info, err := machine()
	if err != nil {
		return nil, fmt.Errorf("this machine: %w", err)
	}
	capacity, err := r.capacity()
	if err != nil {
		return nil, fmt.Errorf("this machine's capacity: %w", err)
	}
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "NodeReady", Message: "fairlead runs pods"}
	version, err := r.conf.Runtime.Version(ctx, &cri.VersionRequest{})
	if err == nil {
		info.ContainerRuntimeVersion = version.GetRuntimeName() + "://" + version.GetRuntimeVersion()
		r.mu.Lock()
		r.prefix = version.GetRuntimeName() + "://"
		r.mu.Unlock()
		err = runtimes.Ready(ctx, r.conf.Runtime)
	}
	if err != nil {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "NodeNotReady", err.Error()
	}
	info.KubeletVersion = "fairlead " + r.conf.Version
	conditions := append(r.pressure(), ready)
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Now()
	}
	return &v1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: r.conf.Node, Labels: map[string]string{
			v1.LabelHostname: r.conf.Node, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		}},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: maps.Clone(capacity), Conditions: conditions, Addresses: r.addresses(), NodeInfo: info,
			DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: r.conf.Port}},
		},
	}, nil
}

func (r *Reporter) addresses() []v1.NodeAddress {
	var out []v1.NodeAddress
	for _, a := range r.conf.Addresses {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: r.conf.Node})
}

func (r *Reporter) capacity() (v1.ResourceList, error) {
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return nil, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(r.conf.Disk, &disk); err != nil {
		return nil, err
	}
	return v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(int64(memory.Totalram)*int64(memory.Unit), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI),
		v1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}, nil
}

// Below these a node is short of something (kubelet's hard eviction signals).
const (
	leastMemory   = 100 << 20 // bytes available
	leastDisk     = 10        // % of the file system
	leastProcIDs  = 10        // % of the kernel's
	procAvailable = "MemAvailable:"
)

// pressure are the conditions about what the machine is short of.
func (r *Reporter) pressure() []v1.NodeCondition {
	out := []v1.NodeCondition{
		{Type: v1.NodeMemoryPressure, Reason: "HasSufficientMemory", Status: v1.ConditionFalse},
		{Type: v1.NodeDiskPressure, Reason: "HasNoDiskPressure", Status: v1.ConditionFalse},
		{Type: v1.NodePIDPressure, Reason: "HasSufficientPID", Status: v1.ConditionFalse},
	}
	if kib, ok := field("/proc/meminfo", procAvailable); ok && kib<<10 < leastMemory {
		out[0].Status, out[0].Reason = v1.ConditionTrue, "HasInsufficientMemory"
	}
	var disk unix.Statfs_t
	if unix.Statfs(r.conf.Disk, &disk) == nil && disk.Bavail*100 < (disk.Blocks-disk.Bfree+disk.Bavail)*leastDisk {
		out[1].Status, out[1].Reason = v1.ConditionTrue, "HasDiskPressure"
	}
	var now unix.Sysinfo_t
	if most, ok := field("/proc/sys/kernel/pid_max", ""); ok && unix.Sysinfo(&now) == nil && int64(now.Procs)*100 > most*(100-leastProcIDs) {
		out[2].Status, out[2].Reason = v1.ConditionTrue, "HasInsufficientPID"
	}
	return out
}

// field is the number behind a word that a line of a file begins with.
func field(file, word string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, word)
		if !ok {
			continue
		}
		var n json.Number
		if f := strings.Fields(rest); len(f) > 0 {
			n = json.Number(f[0])
		}
		out, err := n.Int64()
		return out, err == nil
	}
	return 0, false
}

// machine is what the system says of itself.
func machine() (v1.NodeSystemInfo, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return v1.NodeSystemInfo{}, err
	}
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			return "" // not every system has it
		}
		return strings.TrimSpace(string(text))
	}
	out := v1.NodeSystemInfo{
		MachineID: read("/etc/machine-id"), BootID: read("/proc/sys/kernel/random/boot_id"), SystemUUID: read("/sys/class/dmi/id/product_uuid"),
		KernelVersion: unix.ByteSliceToString(name.Release[:]), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	for line := range strings.Lines(read("/etc/os-release")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			out.OSImage = strings.Trim(v, `"`)
		}
	}
	return out, nil
}
