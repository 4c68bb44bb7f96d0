package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
)

// What the pod of the sweep asks for before and after: a network that goes, one
// that stays, one of ours that takes the default route, and one of a foreign
// plugin with our addresses.
const (
	sweepFrom = `[{"name":"own"},{"name":"lan"}]`
	sweepTo   = `[{"name":"lan"},{"name":"own","mac":"02:00:00:00:00:77","default-route":["10.20.0.1"]},{"name":"lan","interface":"hot"}]`
)

// TestHotPlugCrashSweep kills the agent at every crash point that a change of a
// running pod's networks passes. The next agent finishes the change, or carries
// out the DEL that came meanwhile; what was asked for as before is not touched.
func TestHotPlugCrashSweep(t *testing.T) {
	t.Parallel()
	h, r := hotNode(t, sweepFrom)
	before := h.n.Inventory()
	h.p.CNI("ADD", ownConf).Must()
	h.n.CrashTrace()
	h.annotate(sweepTo)
	h.awaitSweepTo()
	points := h.n.CrashTrace()
	slices.Sort(points)
	points = slices.Compact(points)
	own := func(p string) bool { return strings.HasPrefix(p, "plug.") }
	others := slices.DeleteFunc(slices.Clone(points), own)
	points = slices.DeleteFunc(points, func(p string) bool { return !own(p) })
	require.Equal(t, plugPoints(t), points)
	points = append(points, sample(others)...) // which TestCrashSweep cuts too
	h.p.CNI("DEL", ownConf).Must()
	h.n.RequireNoLeaks(before)

	died := 0
	for i, point := range points {
		h.annotateKnown(sweepFrom)
		h.p.CNI("ADD", ownConf).Must()
		h.await("eth0", "lo", "net1", "net2")
		eth0, net2 := h.index("eth0"), h.index("net2")
		h.n.Crash(point)
		h.annotate(sweepTo)
		eventually(t, func() string { // some points are passed only when Open vSwitch is slower
			if h.n.CrashPending() && h.sweepTo() != "" {
				return "neither dead nor done at " + point
			}
			return ""
		})
		if h.n.CrashPending() {
			h.n.Crash("")
			h.agent.Kill()
		} else {
			require.Error(t, h.agent.Wait())
			died++
		}
		if i%2 == 1 {
			h.p.CNI("DEL", ownConf).Must()
		}
		h.agent = h.n.Agent(r.args()...)
		h.agent.WaitReady()
		if i%2 == 0 {
			h.awaitSweepTo()
			require.Equal(t, []any{eth0, net2}, []any{h.index("eth0"), h.index("net2")}, point)
			h.p.CNI("CHECK", ownConf).Must()
		}
		h.p.CNI("DEL", ownConf).Must()
		requireBare(t, h.p)
		h.n.RequireNoLeaks(before)
	}
	t.Logf("%d crash points, the agent died at %d", len(points), died)
	require.Greater(t, died, len(points)/2)
}

// sweepTo says what is missing of the state after.
func (h *plugged) sweepTo() string {
	out, err := h.n.TryFairlead("describe", "pod", "default/p", "-o", "json")
	if err != nil {
		return err.Error()
	}
	var p agent.Pod
	require.NoError(h.t, json.Unmarshal([]byte(out), &p))
	if len(p.Attachments) != 1 || len(p.Attachments[0].NetworkStatus) != 4 {
		return out
	}
	routes := h.p.Run("ip", "-4", "route", "show", "default")
	if links := h.p.Run("ip", "-o", "link"); !strings.Contains(links, "02:00:00:00:00:77") || !strings.Contains(routes, "via 10.20.0.1 dev net1") {
		return links + routes
	}
	return ""
}

func (h *plugged) awaitSweepTo() {
	h.t.Helper()
	eventually(h.t, h.sweepTo)
	h.await("eth0", "hot", "lo", "net1", "net2")
}

// plugPoints are the crash points that the source names for hot plug.
func plugPoints(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../internal/agent/engine/*.go")
	require.NoError(t, err)
	var out []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`fail\.Here\("(plug\.[^"]+)"\)`).FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
