package whereabouts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// TestPools: of which network and range an IPPool is, and which address an offset is.
func TestPools(t *testing.T) {
	for _, c := range []struct{ name, cidr, offset, network, addr, fault string }{
		{"10.0.0.0-24", "10.0.0.0/24", "9", "", "10.0.0.9", ""},
		{"10.0.0.0-24", "10.0.0.0/24", "255", "", "10.0.0.255", ""},
		{"racks-10.0.0.0-24", "10.0.0.0/24", "1", "racks", "10.0.0.1", ""},
		{"fd00---64", "fd00::/64", "18446744073709551615", "", "fd00::ffff:ffff:ffff:ffff", ""},
		{"a-b-fd00---64", "fd00::/64", "16", "a-b", "fd00::10", ""},
		{"10.0.0.0-24", "10.0.0.0/24", "256", "", "", "offset 256 is beyond range 10.0.0.0/24"},
		{"10.0.0.0-24", "10.0.0.0/24", "-1", "", "", `offset "-1" is not a number`},
		{"10.0.0.0-24", "10.0.0.0/24", "x", "", "", `offset "x" is not a number`},
		{"10.0.0.0-24-n1", "10.0.0.0/24", "1", "", "", "its name is not that of range 10.0.0.0/24"},
		{"racks10.0.0.0-24", "10.0.0.0/24", "1", "", "", "its name is not that of range 10.0.0.0/24"},
		{"-10.0.0.0-24", "10.0.0.0/24", "1", "", "", "its name is not that of range 10.0.0.0/24"},
		{"x", "x", "1", "", "", "spec.range"},
	} {
		p := whereabouts.Pool{Range: c.cidr}
		_, network, err := p.Of(c.name)
		if err == nil {
			require.Equal(t, c.network, network)
			a, fault := p.Addr(c.offset)
			if err = fault; err == nil {
				require.Equal(t, c.addr, a.String())
			}
		}
		if c.fault == "" {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, c.fault)
		}
	}
}
