package v1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineGroup is the group of KubeVirt's kinds.
const MachineGroup = "kubevirt.io"

// MachineOf is the virtual machine that a pod of an owner runs, "" for none.
func MachineOf(owner *metav1.OwnerReference) string {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	if group != MachineGroup || owner.Kind != "VirtualMachineInstance" {
		return ""
	}
	return owner.Name
}
