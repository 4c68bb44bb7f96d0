package view_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/ops/client/view"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// cell gives one cell of the only row of a pods table.
func cell(t *testing.T, pod agent.Pod, n int) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, view.Pods(&out, agent.PodList{Items: []agent.Pod{pod}}, view.Options{Now: now}))
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 3, out.String())
	return strings.Fields(lines[1])[n]
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Minute:                  "0s", // a clock that was set back
		59 * time.Second:              "59s",
		61 * time.Second:              "1m1s",
		time.Hour + 5*time.Minute:     "1h5m",
		47*time.Hour + 59*time.Minute: "47h59m",
		49 * time.Hour:                "2d1h",
	} {
		pod := agent.Pod{Namespace: "a", Name: "b", Attachments: []agent.Attachment{{Created: now.Add(-d)}}}
		require.Equal(t, want, cell(t, pod, 10))
	}
	require.Equal(t, "-", cell(t, agent.Pod{Attachments: []agent.Attachment{{}}}, 10))
}

func TestState(t *testing.T) {
	for want, a := range map[string]agent.Attachment{
		"adding":      {Phase: agent.Adding},
		"undelivered": {Phase: agent.Added},
		"added":       {Phase: agent.Added, Delivered: true},
		"deleting":    {Phase: agent.Deleting},
		"orphan":      {Phase: agent.Deleting, Orphan: true},
		"netns-gone":  {Phase: agent.Added, Delivered: true, NetnsGone: true},
	} {
		require.Equal(t, want, view.State(a))
	}
}

func TestStateOfAnInterface(t *testing.T) {
	a := agent.Attachment{Phase: agent.Added, Delivered: true, Interfaces: []agent.Interface{{HostIf: "a_h", PortMissing: true}}}
	require.Equal(t, "port-missing", cell(t, agent.Pod{Namespace: "a", Name: "b", Attachments: []agent.Attachment{a}}, 9))
	a.NetnsGone = true
	require.Equal(t, "netns-gone", cell(t, agent.Pod{Namespace: "a", Name: "b", Attachments: []agent.Attachment{a}}, 9))
}

// TestNamesCannotSteerTheTerminal: names come from tenants.
func TestNamesCannotSteerTheTerminal(t *testing.T) {
	evil := "x\x1b[2J\ty\nz"
	pod := agent.Pod{Namespace: "a", Name: "b", Attachments: []agent.Attachment{{
		Error: evil, Interfaces: []agent.Interface{{Name: evil, Network: evil}},
		Timeline: []agent.Step{{Name: evil, TookMs: 1, Error: evil}},
	}}, LastFailure: &agent.Failure{Op: evil, IfName: evil, Cause: evil}}
	for _, write := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error {
			return view.Pods(b, agent.PodList{Items: []agent.Pod{pod}}, view.Options{Wide: true})
		},
		func(b *bytes.Buffer) error { return view.Describe(b, pod, view.Options{}) },
		func(b *bytes.Buffer) error {
			return view.Who(b, agent.Who{Items: []agent.IP{{State: agent.IPHeld, Pod: evil, HostIf: evil, Container: evil}}}, view.Options{})
		},
		func(b *bytes.Buffer) error {
			return view.Check(b, agent.CheckResult{Attachments: []agent.CheckAttachment{{Differences: []string{evil}}}})
		},
		func(b *bytes.Buffer) error {
			return view.GC(b, agent.GCResult{
				Removed: []agent.GCRemoved{{Reason: evil, Interfaces: []agent.Interface{{Name: evil}}}},
				Strays:  []agent.GCStray{{Name: evil}}, Unswept: evil, Failed: []agent.GCFailure{{Error: evil}},
			})
		},
		func(b *bytes.Buffer) error {
			return view.Leaks(b, agent.LeakList{Items: []agent.Leak{{File: evil, Reason: evil, Free: evil}}, Failed: []string{evil}}, view.Options{})
		},
		func(b *bytes.Buffer) error {
			return view.Status(b, agent.Status{
				Conditions: []agent.Condition{{Reason: evil}}, Problems: []agent.Problem{{Reason: evil}},
				Orphans: []agent.OrphanedEntry{{Error: evil}},
			}, view.Options{})
		},
	} {
		var out bytes.Buffer
		require.NoError(t, write(&out))
		require.NotContains(t, out.String(), "\x1b")
		require.NotContains(t, out.String(), "\nz", "one value is one line")
	}
}

func TestTimelineOfOddSteps(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, view.Describe(&out, agent.Pod{Attachments: []agent.Attachment{{Timeline: []agent.Step{
		{Name: "none"}, {Name: "late", StartMs: 10}, {Name: "before", StartMs: -3, TookMs: 1}, {Name: "all", TookMs: 10},
	}}}}, view.Options{}))
	bars := 0
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "|") {
			_, frame, _ := strings.Cut(line, "|")
			frame, _, _ = strings.Cut(frame, "|")
			require.Equal(t, 40, len([]rune(frame)), line)
			require.Contains(t, frame, "█", line)
			bars++
		}
	}
	require.Equal(t, 4, bars)

	out.Reset()
	require.NoError(t, view.Describe(&out, agent.Pod{Attachments: []agent.Attachment{{Timeline: []agent.Step{{Name: "zero"}}}}}, view.Options{}))
	require.Contains(t, out.String(), "zero |█")
}

func TestTimelineIsInTheOrderOfBeginning(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, view.Describe(&out, agent.Pod{Attachments: []agent.Attachment{{Timeline: []agent.Step{
		{Name: "inner", StartMs: 1, TookMs: 1}, {Name: "outer", StartMs: 1, TookMs: 5}, {Name: "first", TookMs: 1},
	}}}}, view.Options{}))
	require.Regexp(t, `(?s)first .*outer .*inner `, out.String())
}

func TestAttached(t *testing.T) {
	for name, tc := range map[string]struct{ result, want string }{
		"old form":     {`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}`, `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}` + "\n"},
		"no JSON":      {`x`, "x\n"},
		"no addresses": {`{"interfaces":[{"name":"eth0","sandbox":"/n"}]}`, "INTERFACE   MAC   IP   GATEWAY\neth0        -     -    -\n"},
	} {
		var out bytes.Buffer
		require.NoError(t, view.Attached(&out, []byte(tc.result)), name)
		require.Equal(t, tc.want, out.String(), name)
	}
}

// closed is a pipe whose reader has gone.
type closed struct{}

var errClosed = errors.New("broken pipe")

func (closed) Write([]byte) (int, error) { return 0, errClosed }

func TestWriteErrorsAreTold(t *testing.T) {
	require.ErrorIs(t, view.Subnets(closed{}, agent.SubnetList{}, view.Options{}), errClosed)
	require.ErrorIs(t, view.Describe(closed{}, agent.Pod{}, view.Options{}), errClosed)
}

// TestUnenforcedRates: a rate that the kernel does not enforce is marked where
// it is shown.
func TestUnenforcedRates(t *testing.T) {
	for unenforced, want := range map[bool]string{true: "30/10*Mbit", false: "30/10Mbit"} {
		pod := agent.Pod{Namespace: "a", Name: "b", Attachments: []agent.Attachment{{Interfaces: []agent.Interface{{
			QoS: &agent.QoS{IngressMbps: 30, EgressMbps: 10, LatencyMs: 5, LossPercent: 1}, EgressUnenforced: unenforced, DelayUnenforced: unenforced,
		}}}}}
		require.Equal(t, want, cell(t, pod, 7))
		var out bytes.Buffer
		require.NoError(t, view.Describe(&out, pod, view.Options{}))
		require.Equal(t, unenforced, strings.Contains(out.String(), "from the pod 10 Mbit/s (stored, not enforced by this kernel)\n"), out.String())
		require.Contains(t, out.String(), "towards the pod 30 Mbit/s\n")
		require.Equal(t, unenforced, strings.Contains(out.String(), "latency 5 ms, loss 1 % (stored, not enforced by this kernel)\n"), out.String())
	}
}
