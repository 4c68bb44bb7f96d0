package source_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/node/mux"
)

// mutate changes one thing somewhere below a value: a field is left out, put
// there twice, or becomes something else.
func (m *maker) mutate(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || m.once(30) {
			break
		}
		key := pick(m, slices.Sorted(maps.Keys(v))...)
		if v["spec"] != nil && !m.once(6) {
			key = "spec"
		}
		if m.once(6) && key != "spec" {
			delete(v, key)
			return v
		}
		v[key] = m.mutate(v[key])
		return v
	case []any:
		if len(v) == 0 || m.once(30) {
			break
		}
		at := m.IntN(len(v))
		switch m.IntN(6) {
		case 0:
			return slices.Delete(v, at, at+1)
		case 1:
			return append(v, v[at])
		}
		v[at] = m.mutate(v[at])
		return v
	}
	switch v.(type) {
	case string:
		if !m.once(4) {
			return pick(m, "", "x", "A B", "a.b", "a_b", "../x", "/abs", "1", "10Mi", "Always", "None", "Never", "Exists", "UDP", "HTTPS", "spec.nodeName")
		}
	case float64:
		if !m.once(4) {
			return pick(m, 0, 1, -1, 5, 80, 65535, 70000)
		}
	case bool:
		if !m.once(4) {
			return m.once(2)
		}
	}
	return pick[any](m, "", "x", "A B", "a.b", "a_b", "../x", "/abs", "1", "10Mi", "-1", "Always", "None", "Exists", "true",
		0, 1, -1, 80, 70000, 1.5, true, false, nil, map[string]any{}, []any{}, map[string]any{"x": "y"})
}

// lenient are kubelet's refusals that are not ours: of values that no part of
// this node reads, or that the runtime refuses with a reason of its own.
var lenient = regexp.MustCompile(`affinity|topologySpreadConstraints|readinessGates|priorityClassName|preemptionPolicy|` +
	`runtimeClassName|overhead|spec\.os|securityContext|metadata\.annotations|fieldPath|resourceFieldRef|divisor|medium|` +
	`volumes\[\d+\]\.image|setHostnameAsFQDN|emptyDir|hostnameOverride`)

// TestSameVerdict changes pods at random and asks both sides: what kubelet
// takes, we take, and it becomes the same pod; what it refuses, we refuse, but
// for what is lenient.
func TestSameVerdict(t *testing.T) {
	p := newPair(t, newOracle(t))
	m := &maker{Rand: rand.New(rand.NewPCG(7, 7))}
	count := 3000
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		count = 50_000
	}
	taken, refused, more := 0, 0, 0
	for i := range count {
		raw, err := json.Marshal(m.pod())
		require.NoError(t, err)
		var tree any
		require.NoError(t, json.Unmarshal(raw, &tree))
		for range pick(m, 1, 1, 1, 4) {
			tree = m.mutate(tree)
		}
		raw, err = json.Marshal(tree)
		require.NoError(t, err)
		p.body = fmt.Sprintf("%s %*s", raw, i%50, "") // never the same bytes
		kubelet, ours := p.both(mux.URL)
		switch {
		case kubelet.Error == "" && ours.Error != "":
			t.Fatalf("kubelet takes and we refuse: %s\n%s", ours.Error, p.body)
		case kubelet.Error != "" && ours.Error == "":
			if !lenient.MatchString(kubelet.Error) {
				t.Errorf("kubelet refuses and we take: %s\n%s", kubelet.Error, p.body)
			}
			more++
			p.forget()
		case kubelet.Error != "":
			refused++
		default:
			taken++
			require.Empty(t, difference(texts(t, kubelet), texts(t, ours)), p.body)
		}
	}
	t.Logf("%d taken by both, %d refused by both, %d by kubelet alone", taken, refused, more)
	require.Greater(t, taken, count/4)
	require.Greater(t, refused, count/4)
}

// forget makes both sides hold the same again: no pods.
func (p *pair) forget() {
	p.body = `{"apiVersion":"v1","kind":"PodList","items":[]}`
	p.both(mux.URL)
}
