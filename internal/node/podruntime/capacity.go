package podruntime

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Capacity is what this machine has; its storage is that of the file system of
// a folder.
func Capacity(folder string) (v1.ResourceList, error) {
	var mem unix.Sysinfo_t
	if err := unix.Sysinfo(&mem); err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return nil, fmt.Errorf("capacity of %s: %w", folder, err)
	}
	return v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(int64(mem.Totalram)*int64(mem.Unit), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI),
	}, nil
}
