package static_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/static"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
)

func conf(version, ipam, more string) string {
	return `{"cniVersion":"` + version + `","name":"net","type":"macvlan","ipam":{"type":"static"` + ipam + `}` + more + `}`
}

// TestLikeTheProgram: the same call has the same answer.
func TestLikeTheProgram(t *testing.T) {
	theirs := drivertest.Program{Dir: drivertest.Programs(t, "ipam/static"), Type: static.Name}
	const two = `,"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64"}]`
	for _, c := range []struct{ name, conf, args string }{
		{"addresses", conf("1.1.0", two, ""), ""},
		{"all of it", conf("1.0.0", two+`,"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.9"}],"dns":{"nameservers":["192.0.2.1"],"domain":"d","search":["s"],"options":["o"]}`, ""), ""},
		{"routes of 1.1", conf("1.1.0", two+`,"routes":[{"dst":"10.9.0.0/16","mtu":1400,"priority":5,"table":7,"scope":253}]`, ""), ""},
		{"0.4.0", conf("0.4.0", two, ""), ""},
		{"0.3.1", conf("0.3.1", two+`,"routes":[{"dst":"0.0.0.0/0"}]`, ""), ""},
		{"0.2.0", conf("0.2.0", two+`,"routes":[{"dst":"0.0.0.0/0"}]`, ""), ""},
		{"0.1.0", conf("0.1.0", two, ""), ""},
		{"0.2.0, two of a family", conf("0.2.0", `,"addresses":[{"address":"10.1.2.3/24"},{"address":"10.1.2.4/24"}]`, ""), ""},
		{"none", conf("1.0.0", "", ""), ""},
		{"0.2.0, none", conf("0.2.0", "", ""), ""},
		{"no length", conf("1.0.0", `,"addresses":[{"address":"10.1.2.3"}]`, ""), ""},
		{"nonsense", conf("1.0.0", `,"addresses":[{"address":""}]`, ""), ""},
		{"IPv4 in IPv6", conf("1.0.0", `,"addresses":[{"address":"::ffff:10.1.2.3/120"}]`, ""), ""},
		{"CNI_ARGS", conf("1.0.0", two, ""), "IgnoreUnknown=1;K8S=1;IP=10.1.3.3/24, fd01::3/64;GATEWAY=10.1.3.1,fd01::1"},
		{"CNI_ARGS for others", conf("1.0.0", two, ""), "IP=10.1.3.3/24;GATEWAY=10.1.2.99"},
		{"CNI_ARGS, no length", conf("1.0.0", two, ""), "IP=10.1.3.3"},
		{"CNI_ARGS, bad gateway", conf("1.0.0", two, ""), "IP=10.1.3.3/24;GATEWAY=x"},
		{"CNI_ARGS, unknown", conf("1.0.0", two, ""), "FOO=1"},
		{"CNI_ARGS, no pair", conf("1.0.0", two, ""), "FOO"},
		{"args", conf("1.0.0", two, `,"args":{"cni":{"ips":["10.1.4.4/24"]},"x":1}`), "IP=10.1.3.3/24"},
		{"args, no length", conf("1.0.0", two, `,"args":{"cni":{"ips":["10.1.4.4"]}}`), ""},
		{"runtimeConfig", conf("1.0.0", two, `,"args":{"cni":{"ips":["10.1.4.4/24"]}},"runtimeConfig":{"ips":["10.1.5.5/24","fd05::5/64"]}`), ""},
		{"runtimeConfig, no length", conf("1.0.0", two, `,"runtimeConfig":{"ips":["10.1.5.5"]}`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := static.Plugin{}
			call := driver.PluginCall{Conf: json.RawMessage(c.conf), Args: c.args, Key: core.Key{Container: "c", IfName: "net1"}, Netns: core.Netns{Path: "/var/run/netns/none"}}
			require.NoError(t, p.Accepts(call.Conf))
			want, werr := theirs.Run(core.Add, call)
			got, err := p.Add(t.Context(), call)
			if werr != nil {
				require.Error(t, err)
				require.Equal(t, werr.Error(), err.Error())
				drivertest.RequireCode(t, werr, err)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got))
			require.NoError(t, p.Del(t.Context(), call))
			if c.conf[15] == '0' && c.conf[17] < '4' { // no CHECK before 0.4.0
				return
			}
			for _, prev := range []string{string(got), "", `{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.254"}]}`} {
				checked := call
				if prev != "" {
					checked.Conf = json.RawMessage(c.conf[:len(c.conf)-1] + `,"prevResult":` + prev + `}`)
				}
				_, werr := theirs.Run(core.Check, checked)
				err := p.Check(t.Context(), checked)
				require.Equal(t, werr == nil, err == nil, "%s: %v, %v", prev, werr, err)
				if werr != nil {
					require.Equal(t, werr.Error(), err.Error())
				}
			}
		})
	}
}

func TestAccepts(t *testing.T) {
	for ipam, ok := range map[string]bool{
		``:                       true,
		`,"routes":[],"dns":{}`:  true,
		`,"Addresses":[]`:        false,
		`,"new":1`:               false,
		`,"addresses":{}`:        false,
		`,"addresses":[{"x":1}]`: false,
		`,"addresses":[{"address":"10.0.0.1/8"}]`: true,
	} {
		err := static.Plugin{}.Accepts(json.RawMessage(conf("1.0.0", ipam, "")))
		require.Equal(t, ok, err == nil, "%s: %v", ipam, err)
	}
}
