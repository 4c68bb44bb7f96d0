package deploy

import (
	"context"
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
)

// leased is the address that claimants want.
var leased = struct{ subnet, address, name string }{"once", "fd00::5", fairlead.LeaseName("once", netip.MustParseAddr("fd00::5"))}

func uid(claimant int) string { return "uid-" + strconv.Itoa(claimant) }

// claim makes the AddressLease for one claimant; some write the address in
// another way.
func claim(ctx context.Context, c *rest.RESTClient, claimant int) error {
	address := leased.address
	if claimant%2 == 0 {
		address = "fd00:0:0::0005"
	}
	lease := &fairlead.AddressLease{
		ObjectMeta: metav1.ObjectMeta{Name: fairlead.LeaseName(leased.subnet, netip.MustParseAddr(address))},
		Spec: fairlead.AddressLeaseSpec{
			Subnet: leased.subnet, Address: address, MAC: "0a:00:00:00:00:05",
			Owner: fairlead.Owner{Kind: "Pod", Namespace: "default", Name: "web", UID: uid(claimant), NIC: "net1"},
		},
	}
	return c.Post().Resource("addressleases").Body(lease).Do(ctx).Error()
}
