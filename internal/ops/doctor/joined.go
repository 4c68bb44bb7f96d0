package doctor

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// Joined tells whether a cluster that is joined to others knows gateways of these; nothing of
// one that is not, and of databases that do not answer, for which there is another check.
func Joined(ctx context.Context, nb, sb rows.Place) []Finding {
	found, err := readOVN(ctx, rows.Northbound, nb, "NB_Global", "external_ids")
	if err != nil || len(found) == 0 {
		return nil
	}
	ids := rows.Map(found[0]["external_ids"])
	zone, at := ids[ovn.KeyICZone], ids[ovn.KeyICSouth]
	chassis, err := readOVN(ctx, rows.Southbound, sb, "Chassis", "other_config")
	if zone == "" || err != nil {
		return nil
	}
	gateways := 0
	for _, r := range chassis {
		if rows.Map(r["other_config"])["is-remote"] == "true" {
			gateways++
		}
	}
	f := Finding{Group: "Cluster", Name: "interconnection", Next: "kubectl -n kube-system describe configmap ovn-ic-config"}
	switch {
	case ids[ovn.KeyICParts] == "true":
		f.Verdict, f.Reason = Warning, fmt.Sprintf("zone %s is withdrawn here, and not yet from the databases at %s: do they answer?", zone, at)
	case gateways == 0:
		f.Verdict, f.Reason = Warning, fmt.Sprintf("zone %s of the databases at %s knows no gateway of another cluster: has one joined, and does ovn-ic of central's members reach them?", zone, at)
	default:
		f.Verdict, f.Next, f.Reason = OK, "", fmt.Sprintf("zone %s of the databases at %s; %d gateways of other clusters", zone, at, gateways)
	}
	return []Finding{f}
}
