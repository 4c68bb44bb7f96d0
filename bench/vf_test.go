package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the VM tells is the row; a VM that fails, or that tells nothing, fails the row with
// its own words.
func TestReportOfTheVM(t *testing.T) {
	b := scratch(t)
	vm := filepath.Join(b.dir, "vmrun")
	boot := func(script string) (report, error) {
		require.NoError(t, os.WriteFile(vm, []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // a program
		return b.boot(vm, []string{"bench", "-guest"})
	}
	want := line{row: "18", what: "ADD", load: "1 par", ours: "1 ms", peer: "3 ms", got: 3, unit: " x", bound: atLeast(1.43, 2)}
	require.Equal(t, want, tell(want).line())
	r, err := boot(`[ "$*" = "--vfs 7 --timeout 1800 -- bench -guest" ] || exit 9
echo '{"Lines":[{"Row":"18","Got":3,"Gate":60,"AtMost":true}],"Notes":["n"]}'`)
	require.NoError(t, err)
	require.Equal(t, report{Lines: []told{{Row: "18", Got: 3, Gate: 60, AtMost: true}}, Notes: []string{"n"}}, r)

	_, err = boot("echo vmrun: no kernel >&2; exit 125")
	require.ErrorContains(t, err, "exit status 125: vmrun: no kernel")
	_, err = boot("echo bench: warm-up >&2; echo '{'")
	require.ErrorContains(t, err, "bench: warm-up")
	_, err = boot("echo '{}'")
	require.ErrorContains(t, err, "no lines")
	require.NoError(t, os.Remove(vm))
	_, err = b.boot(vm, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

const stepMetrics = `# TYPE fairlead_cni_step_duration_seconds histogram
fairlead_cni_step_duration_seconds_bucket{step="sriov.carrier",le="+Inf"} 4
fairlead_cni_step_duration_seconds_sum{step="sriov.carrier"} 1.5
fairlead_cni_step_duration_seconds_count{step="sriov.carrier"} 4
fairlead_cni_step_duration_seconds_sum{step="sriov.prove"} 0.5
fairlead_cni_step_duration_seconds_count{step="sriov.prove"} 2
fairlead_cni_operation_duration_seconds_sum{op="ADD"} 9
`

func TestStepsOfTheAgent(t *testing.T) {
	got, err := stepsIn(stepMetrics)
	require.NoError(t, err)
	require.Equal(t, map[string]steptime{"sriov.carrier": {1500 * time.Millisecond, 4}, "sriov.prove": {500 * time.Millisecond, 2}}, got)

	p := phase{took: []time.Duration{time.Second, 2 * time.Second}, more: time.Second}
	require.InDelta(t, 1000, p.less(), 1e-9)

	_, err = stepsIn(strings.ReplaceAll(stepMetrics, "1.5", "x"))
	require.Error(t, err)
}

// A run whose steps the agent does not tell is no result: all of the time would be ours.
func TestSplitNeedsEachStep(t *testing.T) {
	var s sample
	before := map[string]steptime{"sriov.carrier": {time.Second, 2}}
	now := map[string]steptime{"sriov.carrier": {3 * time.Second, 4}, "sriov.probe": {time.Second, 1}, "sriov.prove": {time.Millisecond, 1}}
	require.ErrorContains(t, split(&s, before, now), "sriov.del.bind")
	now["sriov.del.bind"], now["sriov.del.prove"] = steptime{time.Second, 1}, steptime{2 * time.Millisecond, 1}
	s = sample{}
	require.NoError(t, split(&s, before, now))
	require.Equal(t, 3*time.Second+time.Millisecond, s.add.more)
	require.Equal(t, time.Second+2*time.Millisecond, s.del.more)
	require.Error(t, split(&s, now, now))
}

// The first functions of a card, as sysfs shows them.
func TestVFsOfACard(t *testing.T) {
	sys := t.TempDir()
	device := filepath.Join(sys, "class/net/pf0/device")
	require.NoError(t, os.MkdirAll(device, 0o755))
	for i := range 2 {
		pci := fmt.Sprintf("0000:01:10.%d", 2*i)
		require.NoError(t, os.Symlink("../"+pci, filepath.Join(device, fmt.Sprintf("virtfn%d", i))))
		require.NoError(t, os.MkdirAll(filepath.Join(sys, "bus/pci/devices", pci, "net", fmt.Sprintf("eth%d", i)), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(sys, "class/net", fmt.Sprintf("eth%d", i)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(sys, "class/net", fmt.Sprintf("eth%d", i), "address"), []byte("02:00:00:00:00:01\n"), 0o600))
	}
	got, err := vfsOf(sys, "pf0", 2)
	require.NoError(t, err)
	require.Equal(t, vf{index: 1, pci: "0000:01:10.2", name: "eth1", mac: "02:00:00:00:00:01", declared: "02:0a:09:00:00:11"}, got[1])
	_, err = vfsOf(sys, "pf0", 3)
	require.ErrorIs(t, err, os.ErrNotExist, "the card has fewer")
}

// Each pod has an address of its own, in the range of the configuration.
func TestDeclaredAddresses(t *testing.T) {
	text := declaredAddresses(declaredPods)
	require.Equal(t, declaredPods, strings.Count(text, "kind: PodNetwork"))
	seen := map[string]bool{}
	for l := range strings.Lines(text) {
		if _, rest, is := strings.Cut(l, "ips: ["); is {
			require.Regexp(t, `^10\.20\.[1-4]\.\d+/16\]`, rest)
			seen[rest] = true
		}
	}
	require.Len(t, seen, declaredPods)
}
