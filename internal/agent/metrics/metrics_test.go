package metrics

import (
	"errors"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// scrape is the text a Prometheus server would read.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	return w.Body.String()
}

func hasLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	have := map[string]bool{}
	for l := range strings.SplitSeq(text, "\n") {
		have[l] = true
	}
	for _, l := range lines {
		require.True(t, have[l], "%s\nis not in\n%s", l, text)
	}
}

func TestObserver(t *testing.T) {
	m := NewMetrics(Options{Version: "v1", Revision: "abc"})
	var o core.Observer = m
	o.OpDone(core.Add, "ovs", 4*time.Millisecond, nil)
	o.OpDone(core.Add, "ovs", 51*time.Second, errors.New("late"))
	o.OpDone(core.Status, "", time.Millisecond, nil)
	o.OpDone(core.Add, "", time.Millisecond, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "no"))
	o.OpDone(core.Check, "", time.Millisecond, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "no"))
	o.StepDone("journal.begin", 300*time.Microsecond)
	m.JournalCorrupt()
	m.APIRequest("PATCH", 200)
	m.APIRequest("PATCH", 200)
	m.APIRequest("GET", 0)
	hasLines(t, scrape(t, m),
		`fairlead_cni_operation_duration_seconds_bucket{driver="ovs",op="ADD",result="success",le="0.002"} 0`,
		`fairlead_cni_operation_duration_seconds_bucket{driver="ovs",op="ADD",result="success",le="0.005"} 1`,
		`fairlead_cni_operation_duration_seconds_bucket{driver="ovs",op="ADD",result="error",le="50"} 0`,
		`fairlead_cni_operation_duration_seconds_bucket{driver="ovs",op="ADD",result="error",le="+Inf"} 1`,
		`fairlead_cni_operation_duration_seconds_count{driver="none",op="STATUS",result="success"} 1`,
		`fairlead_cni_step_duration_seconds_bucket{step="journal.begin",le="0.0002"} 0`,
		`fairlead_cni_step_duration_seconds_bucket{step="journal.begin",le="0.0005"} 1`,
		`fairlead_refused_adds_total{reason="DriverCannot"} 1`,
		`fairlead_journal_corruptions_total 1`,
		`fairlead_api_requests_total{code="200",method="PATCH"} 2`,
		`fairlead_api_requests_total{code="0",method="GET"} 1`,
		`fairlead_build_info{goversion="`+runtime.Version()+`",revision="abc",version="v1"} 1`,
	)
}

func TestStates(t *testing.T) {
	connected := true
	m := NewMetrics(Options{
		Addresses: func() []ipam.SubnetStats {
			return []ipam.SubnetStats{
				{Subnet: "dual", Family: "IPv4", Used: 3, Excluded: 4, Free: 249},
				{Subnet: "dual", Family: "IPv6", Used: 3, Excluded: 2, Free: 1 << 60},
				{Subnet: "six", Family: "IPv6", Used: 1, Excluded: 2, Free: 1 << 60},
			}
		},
		Orphans:        func() int { return 2 },
		InFlight:       func() int { return 7 },
		OVSDBConnected: func() bool { return connected },
		WritesRefused:  func() bool { return connected },
	})
	hasLines(t, scrape(t, m),
		`fairlead_ipam_addresses{state="used",subnet="dual"} 3`,
		`fairlead_ipam_addresses{state="free",subnet="dual"} 249`,
		`fairlead_ipam_addresses{state="excluded",subnet="dual"} 4`,
		`fairlead_ipam_addresses{state="free",subnet="six"} 1.152921504606847e+18`,
		`fairlead_orphans 2`,
		`fairlead_cni_operations_in_flight 7`,
		`fairlead_ovsdb_connected 1`,
		`fairlead_api_writes_refused 1`,
	)
	connected = false
	hasLines(t, scrape(t, m), `fairlead_ovsdb_connected 0`, `fairlead_api_writes_refused 0`)
}

// TestLabels holds the labels of our metrics to a fixed list: none of them may
// grow with the number of pods.
func TestLabels(t *testing.T) {
	m := NewMetrics(Options{
		Addresses: func() []ipam.SubnetStats { return []ipam.SubnetStats{{Subnet: "s"}} },
		Orphans:   func() int { return 0 }, InFlight: func() int { return 0 }, OVSDBConnected: func() bool { return false },
		WritesRefused: func() bool { return false },
	})
	m.OpDone(core.Add, "ovs", 0, nil)
	m.OpDone(core.Add, "", 0, core.Reasoned(core.CodeValue, core.ReasonDriverCannot, "no"))
	m.StepDone("s", 0)
	m.APIRequest("GET", 200)
	want := map[string][]string{
		"fairlead_cni_operation_duration_seconds": {"driver", "op", "result"},
		"fairlead_cni_step_duration_seconds":      {"step"},
		"fairlead_api_requests_total":             {"code", "method"},
		"fairlead_ipam_addresses":                 {"state", "subnet"},
		"fairlead_build_info":                     {"goversion", "revision", "version"},
		"fairlead_journal_corruptions_total":      nil,
		"fairlead_refused_adds_total":             {"reason"},
		"fairlead_orphans":                        nil,
		"fairlead_cni_operations_in_flight":       nil,
		"fairlead_ovsdb_connected":                nil,
		"fairlead_api_writes_refused":             nil,
	}
	families, err := m.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "fairlead_") {
			continue
		}
		labels, known := want[f.GetName()]
		require.True(t, known, f.GetName())
		delete(want, f.GetName())
		for _, metric := range f.GetMetric() {
			var names []string
			for _, l := range metric.GetLabel() {
				names = append(names, l.GetName())
			}
			require.Equal(t, labels, names, f.GetName())
		}
	}
	require.Empty(t, want, "metrics that were not gathered")
}
