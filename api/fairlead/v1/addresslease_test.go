package v1_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fairlead/fairlead/api/fairlead/v1"
)

// An address has one name in one Subnet, however it is written, and the name
// says whose it is, also where Subnets' names end like addresses.
func TestLeaseNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, subnet := range []string{"web", "a.b", "a.10", "a.10.16", "x-1.0-0", "10.16.0.5", "a.fd00-0010-0016-0000-0000-0000-0000-0005"} {
		for _, text := range []string{"10.16.0.5", "16.0.5.1", "255.255.255.255", "fd00:10:16::5", "::1", "fd00::"} {
			a := netip.MustParseAddr(text)
			name := v1.LeaseName(subnet, a)
			require.Empty(t, validation.IsDNS1123Subdomain(name), name)
			require.NotContains(t, seen, name)
			seen[name] = subnet + " " + text
			gotSubnet, got, err := v1.ParseLeaseName(name)
			require.NoError(t, err)
			require.Equal(t, subnet, gotSubnet, name)
			require.Equal(t, a, got, name)
		}
	}
	require.Equal(t, "web.10.16.0.5", v1.LeaseName("web", netip.MustParseAddr("::ffff:10.16.0.5")))
	require.Equal(t, "web.fd00-0010-0016-0000-0000-0000-0000-0005", v1.LeaseName("web", netip.MustParseAddr("fd00:0010:16:0::5")))
	require.Equal(t, v1.LeaseName("web", netip.MustParseAddr("fe80::1")), v1.LeaseName("web", netip.MustParseAddr("fe80::1%eth0")))

	for _, name := range []string{"", "web", "10.16.0.5", ".10.16.0.5", "web.16.0.5", "web.10.16.0.256", "web.10.16.0.05", "web.fd00--5", "web.fd00-10-16-0-0-0-0-5", "web.FD00-0010-0016-0000-0000-0000-0000-0005"} {
		_, _, err := v1.ParseLeaseName(name)
		require.ErrorContains(t, err, name)
	}
}
