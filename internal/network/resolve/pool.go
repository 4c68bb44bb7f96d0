package resolve

import (
	"net/netip"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// statefulSet is the kind of controller whose pods have an ordinal.
const statefulSet = "StatefulSet"

// fromPool gives the NIC its addresses from the pod's list, unless it has fixed
// ones: the element of its ordinal for a pod of a StatefulSet, so that each
// replica keeps its own, else whichever is free when it is attached.
func (r *resolution) fromPool(ann *annotation.Notes, list [][]netip.Addr, nic *core.NIC) error {
	if len(list) == 0 || len(nic.IPs) > 0 {
		return nil
	}
	key := ann.Key(v1.FieldIPPool)
	for _, element := range list {
		if err := annotation.CheckAddresses(key, element, nic.Subnet); err != nil {
			return err
		}
	}
	at, ok := Ordinal(r.pod.Name)
	switch {
	case !ok || r.controller != "" && r.controller != statefulSet:
	case at < len(list):
		nic.IPs = list[at]
		return nil
	case r.controller == statefulSet:
		return annotation.Refused(core.CodeAddress, key, ann.All[key], "has %d elements, and none for replica %d", len(list), at)
	}
	nic.Pool = list
	return nil
}

// Ordinal is the number that a StatefulSet gives a pod in its name. Where the
// source does not tell who controls the pod, a name of that form will do.
func Ordinal(name string) (int, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 {
		return 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	return n, err == nil && n >= 0 && strconv.Itoa(n) == name[i+1:]
}
