package whereabouts_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/whereabouts"
)

// TestRanges: which addresses a configuration gives, each range for itself, and which not.
func TestRanges(t *testing.T) {
	for conf, want := range map[string]string{
		`"range":"10.0.0.0/29"`:                      "10.0.0.0/29 [10.0.0.1-10.0.0.6]",
		`"range":"10.0.0.3/29"`:                      "10.0.0.0/29 [10.0.0.1-10.0.0.6]",
		`"range":"10.0.0.3-10.0.0.5/29"`:             "10.0.0.0/29 [10.0.0.3-10.0.0.5]",
		`"range":"10.0.0.0-10.0.0.7/29"`:             "10.0.0.0/29 [10.0.0.1-10.0.0.6]",
		`"range":"10.0.0.0/29","gateway":"10.0.0.1"`: "10.0.0.0/29 [10.0.0.2-10.0.0.6]",
		`"range":"10.0.0.0/29","gateway":"10.9.0.1"`: "10.0.0.0/29 [10.0.0.1-10.0.0.6]",
		`"range":"10.0.0.0/24","range_start":"10.0.0.16","range_end":"10.0.0.31","exclude":["10.0.0.16/30","10.0.0.25","10.0.0.28-10.0.0.29"]`: "10.0.0.0/24 [10.0.0.20-10.0.0.24 10.0.0.26-10.0.0.27 10.0.0.30-10.0.0.31]",
		`"range":"10.0.0.0/24","range_start":"10.0.0.0","range_end":"10.0.0.255"`:                                                              "10.0.0.0/24 [10.0.0.1-10.0.0.254]",
		`"range":"10.0.0.0/30","exclude":["10.0.0.0/24"]`:                                                                                      "10.0.0.0/30 []",
		`"ipRanges":[{"range":"10.0.0.0/29","exclude":["10.0.0.4/30"]},{"range":"fd00::/64","range_start":"fd00::10","range_end":"fd00::1f"}]`: "10.0.0.0/29 [10.0.0.1-10.0.0.3] fd00::/64 [fd00::10-fd00::1f]",
		`"range":"10.0.0.0/30","ipRanges":[{"range":"fd00::/126"}]`:                                                                            "10.0.0.0/30 [10.0.0.1-10.0.0.2] fd00::/126 [fd00::1-fd00::2]",
		// What is the program's own affair.
		`"range":"10.0.0.0/30","datastore":"kubernetes","kubernetes":{"kubeconfig":"/x"},"log_file":"/x","log_level":"debug","etcd_host":"x","sleep_for_race":3,"leader_lease_duration":1500,"configuration_path":"/x"`: "10.0.0.0/30 [10.0.0.1-10.0.0.2]",
	} {
		c, err := whereabouts.Parse([]byte(`{"type":"whereabouts",` + conf + `}`))
		require.NoError(t, err, conf)
		text := ""
		for i, r := range c.Ranges {
			var free []string
			for _, f := range r.Free {
				free = append(free, fmt.Sprintf("%s-%s", f.From, f.To))
			}
			if i > 0 {
				text += " "
			}
			text += fmt.Sprint(r.CIDR, " ", free)
		}
		require.Equal(t, want, text, conf)
	}
}

// TestRefused: what cannot be read, or is not known, is refused with its key.
func TestRefused(t *testing.T) {
	for conf, want := range map[string]string{
		``:                                               `neither key "range" nor "ipRanges" has a range`,
		`"ipRanges":[]`:                                  `neither key "range" nor "ipRanges" has a range`,
		`"ipRanges":[{}]`:                                `key "ipRanges[0].range"`,
		`"ipRanges":{}`:                                  `key "ipRanges"`,
		`"range":7`:                                      `range`,
		`"range":"10.0.0.0"`:                             `key "range"`,
		`"range":"10.0.0.0/33"`:                          `key "range"`,
		`"range":"10.0.0.0/31"`:                          `key "range": 10.0.0.0/31 has no addresses for pods`,
		`"range":"10.0.0.1/32"`:                          `key "range": 10.0.0.1/32 has no addresses for pods`,
		`"range":"10.0.0.9-/24"`:                         `key "range"`,
		`"range":"10.0.1.9-10.0.0.20/24"`:                `key "range": 10.0.1.9 is not in 10.0.0.0/24`,
		`"range":"10.0.0.20-10.0.0.9/24"`:                `"range_end": 10.0.0.9 comes before the start, 10.0.0.20`,
		`"range":"fd00::1-10.0.0.9/24"`:                  `key "range": fd00::1 is not in 10.0.0.0/24`,
		`"range":"::ffff:10.0.0.0/120"`:                  `key "range"`,
		`"range_start":"10.0.0.1"`:                       `need key "range"`,
		`"exclude":["10.0.0.1/32"]`:                      `need key "range"`,
		`"range":"10.0.0.0/24","range_start":"10.0.1.1"`: `key "range_start": 10.0.1.1 is not in 10.0.0.0/24`,
		`"range":"10.0.0.0/24","range_end":"x"`:          `key "range_end"`,
		`"range":"10.0.0.0/24","range_start":"10.0.0.9","range_end":"10.0.0.8"`:  `key "range_end": 10.0.0.8 comes before the start, 10.0.0.9`,
		`"range":"10.0.0.0/24","exclude":["10.0.0.9/33"]`:                        `key "exclude[0]"`,
		`"ipRanges":[{"range":"10.0.0.0/24","exclude":["10.0.0.9/32","x"]}]`:     `key "ipRanges[0].exclude[1]"`,
		`"ipRanges":[{"range":"10.0.0.0/24","gateway":"10.0.0.1"}]`:              `ipRanges[0]: key "gateway" is not known`,
		`"range":"10.0.0.0/24","gateway":"10.0.0.1/24"`:                          `key "gateway"`,
		`"range":"10.0.0.0/24","node_slice_size":"/28"`:                          `key "node_slice_size" is not known`,
		`"Range":"10.0.0.0/24"`:                                                  `key "Range" is not known`,
		`"range":"10.0.0.0/24","enable_overlapping_ranges":"no"`:                 `enable_overlapping_ranges`,
		`"range":"10.0.0.0/24","network_name":"a_b"`:                             `key "network_name": "a_b" cannot be a part of an object's name`,
		`"range":"10.0.0.0/24","addresses":[{"address":"10.0.0.9/24","mac":""}]`: `addresses[0]: key "mac" is not known`,
	} {
		if conf != "" {
			conf = "," + conf
		}
		_, err := whereabouts.Parse([]byte(`{"type":"whereabouts"` + conf + `}`))
		require.ErrorContains(t, err, want, conf)
		require.Equal(t, core.CodeConfig, core.CodeOf(err), conf)
	}
}

// TestDomains: ranges of one name have no address twice, unless that is switched off.
func TestDomains(t *testing.T) {
	for conf, want := range map[string][]string{
		`"range":"10.0.0.0/24"`:                                                                        {"whereabouts"},
		`"range":"10.0.0.0/16"`:                                                                        {"whereabouts"},
		`"range":"10.0.0.0/24","enable_overlapping_ranges":true`:                                       {"whereabouts"},
		`"range":"10.0.0.0/24","network_name":"Racks"`:                                                 {"whereabouts.racks"},
		`"range":"10.0.0.9/24","enable_overlapping_ranges":false`:                                      {"whereabouts.10.0.0.0-24"},
		`"ipRanges":[{"range":"10.0.0.0/24"},{"range":"fd00::/64"}],"enable_overlapping_ranges":false`: {"whereabouts.10.0.0.0-24", "whereabouts.fd00-0000-0000-0000-0000-0000-0000-0000-64"},
		`"range":"10.0.0.0/24","network_name":"racks","enable_overlapping_ranges":false`:               {"whereabouts.racks.10.0.0.0-24"},
	} {
		c, err := whereabouts.Parse([]byte(`{"type":"whereabouts",` + conf + `}`))
		require.NoError(t, err)
		var have []string
		for _, r := range c.Ranges {
			have = append(have, c.Domain(r))
		}
		require.Equal(t, want, have, conf)
	}
}

// TestGiven: the addresses that were chosen, and a fixed one in the place of one, become
// those of plugin static, with the gateway of their family, routes and DNS.
func TestGiven(t *testing.T) {
	const plugin = `{"type":"macvlan","master":"eth1","ipam":{"type":"whereabouts","ipRanges":[{"range":"10.0.0.0/24"},{"range":"fd00::/64"}],
		"gateway":"10.0.0.1","routes":[{"dst":"10.9.0.0/16"}],"dns":{"nameservers":["10.0.0.2"]},"addresses":[{"address":"10.8.0.1/24"}],"log_level":"debug"}}`
	var keys map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(plugin), &keys))
	c, err := whereabouts.Parse(keys["ipam"])
	require.NoError(t, err)
	fixed := netip.MustParseAddr("10.0.0.99")
	r, ok := c.Of(fixed)
	require.True(t, ok)
	c.Fix(r, fixed, "")
	require.Len(t, c.Ranges, 1)
	_, ok = c.Of(netip.MustParseAddr("10.1.0.1"))
	require.False(t, ok)
	kept := []core.AddrRange{{From: netip.MustParseAddr("fd00::1"), To: netip.MustParseAddr("fd00::9")}, {From: fixed, To: fixed}}
	pool, err := c.Pool(c.Ranges[0], kept)
	require.NoError(t, err)
	require.Equal(t, "fd00::a", pool.Ranges[0].From.String())

	conf, err := c.Static([]byte(plugin))
	require.NoError(t, err)
	conf, err = whereabouts.Give(conf, core.Claim{Addr: pool.Ranges[0].From, Pool: pool})
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"macvlan","master":"eth1","ipam":{"type":"static","routes":[{"dst":"10.9.0.0/16"}],"dns":{"nameservers":["10.0.0.2"]},
		"addresses":[{"address":"10.8.0.1/24"},{"address":"10.0.0.99/24","gateway":"10.0.0.1"},{"address":"fd00::a/64"}]}}`, string(conf))
}
