package status

import (
	"crypto/md5" //nolint:gosec // G501: the status names it; it compares, and proves nothing
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
)

// SecurityGroup is the status of a SecurityGroup with what is wrong with its rules, each
// with the path of its field, and which of its fields nobody carries out.
func SecurityGroup(o *v1.SecurityGroup, faults, undone []string) v1.SecurityGroupStatus {
	var refused error
	if len(faults) > 0 {
		refused = errors.New(strings.Join(faults, "; "))
	}
	s := v1.SecurityGroupStatus{
		PortGroup: logical.SecurityGroupOf(o.Name), AllowSameGroupTraffic: o.Spec.AllowSameGroupTraffic,
		IngressMd5: sum(o.Spec.IngressRules), EgressMd5: sum(o.Spec.EgressRules),
		IngressLastSyncSuccess: !faulty(faults, "spec.ingressRules"), EgressLastSyncSuccess: !faulty(faults, "spec.egressRules"),
	}
	s.Conditions, _ = Merge(o.Status.Conditions, Conditions(o.Generation, refused, append(undone, Unknown(o.Spec.Unknown)...)))
	return s
}

// faulty tells that one of some faults is below a path.
func faulty(faults []string, path string) bool {
	return slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, path) })
}

// sum tells rules apart from others.
func sum(rules []v1.SecurityGroupRule) string {
	text, err := json.Marshal(rules)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", md5.Sum(text)) //nolint:gosec // G401: as above
}
