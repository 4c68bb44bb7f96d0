package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// hopeless are networks that their plugin refuses in ADD and DEL alike, with
// the annotation that asks for them, the code and what the message has.
var hopeless = []struct {
	name, config, networks string
	code                   uint
	says                   []string
}{
	{"junk", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brx","args":{"cni":{"ips":["junk"]}},"ipam":{"type":"host-local","subnet":"10.71.0.0/24"}}`,
		"junk", 7, []string{`"args.cni.ips[0]"`, `"junk"`}},
	{"length", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brx","ipam":{"type":"host-local","subnet":"10.71.0.0/99"}}`,
		"length", 7, []string{`"ipam.subnet"`, `"10.71.0.0/99"`}},
	{"mtu", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brx","mtu":"1500","ipMasq":true,"ipam":{"type":"host-local","subnet":"10.71.0.0/24"}}`,
		"mtu", 7, []string{`"mtu"`, `"1500"`}},
	{"kind", `{"cniVersion":"1.0.0","type":"bridge","bridge":5}`, "kind", 7, []string{`"bridge"`, "5"}},
	{"absent", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brx","ipam":{"type":"nowhere"}}`, "absent", 7, []string{`"ipam.type"`, `"nowhere"`}},
	{"outside", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brx","ipam":{"type":"../x"}}`, "outside", 7, []string{`"ipam.type"`, `"../x"`}},
	{"plugin", `{"cniVersion":"1.0.0","type":"nowhere"}`, "plugin", 7, []string{`"nowhere"`}},
	{"chained", `{"cniVersion":"1.0.0","name":"chained","plugins":[{"type":"bridge","bridge":"brx"},{"type":"tuning","mtu":"9000"}]}`,
		"chained", 7, []string{`"tuning"`, `"mtu"`, `"9000"`}},
	{"version", `{"cniVersion":"1.1.0","type":"elderly"}`, "version", 1, []string{`"cniVersion"`, `"1.1.0"`}},
}

// TestHopelessDelegatesTouchNothing: what a plugin would refuse, and refuse to
// undo, is refused before anything is made; the smallest pool is as it was after
// twenty attempts of each, and serves the next pod.
func TestHopelessDelegatesTouchNothing(t *testing.T) {
	t.Parallel()
	objects := []string{
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/28"}), podObject("good", nil),
	}
	for _, h := range hopeless {
		objects = append(objects, nadObject(h.name, h.config), podObject("bad-"+h.name, map[string]string{networksKey: h.networks}))
	}
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", together(objects...))
	dir := filepath.Join(n.Dir, "plugins")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	// A plugin of its own time: it refuses the version in ADD and DEL alike.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "elderly"), []byte(`#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}' && exit 0
echo '{"code":1,"msg":"incompatible CNI versions"}'
exit 1
`), 0o755))
	n.Agent("--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", dir).WaitReady()
	before := n.Inventory()
	for _, h := range hopeless {
		p := n.NewPod("bad-" + h.name)
		for i := range 20 { // as many sandboxes, of which no DEL comes
			p.ContainerID = fmt.Sprintf("%s%02d", p.ContainerID[:32], i)
			e := p.CNI("ADD", ownConf).MustCode(h.code)
			for _, words := range append(h.says, h.name) {
				require.Contains(t, e.Msg+e.Details, words)
			}
			require.NotContains(t, e.Details, "roll-back")
			require.Equal(t, []string{"lo"}, linkNames(t, p), "%s %d", h.name, i)
		}
		p.Delete()
		n.RequireNoLeaks(before)
	}
	require.Contains(t, n.Fairlead("gc"), " 0 failed", "nothing is left over")
	good := n.NewPod("good")
	good.CNI("ADD", ownConf).Must()
	good.CNI("DEL", ownConf).Must()
	good.Delete()
	n.RequireNoLeaks(before)
}
