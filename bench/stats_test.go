package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func ms(v ...int) (out []time.Duration) {
	for _, n := range v {
		out = append(out, time.Duration(n)*time.Millisecond)
	}
	return out
}

func TestQuantileIsNearestRank(t *testing.T) {
	hundred := phase{}
	for i := 100; i > 0; i-- {
		hundred.took = append(hundred.took, time.Duration(i)*time.Millisecond)
	}
	for _, c := range []struct {
		p    phase
		q    float64
		want float64
	}{
		{phase{took: ms(7)}, 0.5, 7},
		{phase{took: ms(7)}, 0.99, 7},
		{phase{took: ms(4, 1, 3, 2)}, 0.5, 2},
		{phase{took: ms(5, 1, 3, 2, 4)}, 0.5, 3},
		{phase{took: ms(4, 1, 3, 2)}, 0, 1},
		{phase{took: ms(4, 1, 3, 2)}, 1, 4},
		{hundred, 0.99, 99},
		{hundred, 0.5, 50},
	} {
		require.InDelta(t, c.want, quantile(c.p.took, c.q), 0, "%v of %v", c.q, c.p.took)
	}
	require.True(t, math.IsNaN(phase{}.p50()))
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{9, 1, 2, 3}), 0)
	require.True(t, math.IsNaN(median(nil)))
	in := []float64{3, 1, 2}
	median(in)
	require.Equal(t, []float64{3, 1, 2}, in, "the argument stays")
}

func TestPhasesJoin(t *testing.T) {
	var p phase
	p.join(phase{took: ms(1, 2), wall: time.Second, cpu: bill{ovs: 6 * time.Millisecond}})
	p.join(phase{took: ms(3), wall: time.Second, cpu: bill{plugin: 3 * time.Millisecond}})
	require.InDelta(t, 3, p.cpuEach(), 1e-9)
	require.InDelta(t, 1.5, p.rate(), 1e-9)
	require.Equal(t, ms(1, 2, 3), p.took)
	require.Equal(t, "3.0 ms (plugin 1.0, agent 0.0, OVS 2.0)", p.bill())
}

// sampleOf is one operation: its time, processor time and wall time in ms.
func sampleOf(took, cpu, wall int) sample {
	return sample{add: phase{took: ms(took), cpu: bill{plugin: ms(cpu)[0]}, wall: ms(wall)[0]}}
}

func TestRatioIsAboveOneWhenOursIsBetter(t *testing.T) {
	fast, slow := sampleOf(10, 5, 10), sampleOf(40, 10, 30)
	require.InDelta(t, 4, addTime("", "", atLeast(2, 3)).ratio(fast, slow), 1e-9)
	require.InDelta(t, 2, addCPU("", "", atLeast(2, 3)).ratio(fast, slow), 1e-9)
	require.InDelta(t, 3, addRate("", "", atLeast(2, 3)).ratio(fast, slow), 1e-9)
}

func TestRatioToAFloorIsAboveOneWhenOursIsWorse(t *testing.T) {
	floor, ours := sampleOf(10, 5, 10), sampleOf(15, 10, 30)
	time, rate := addTime("", "", atMost(2, 2)), addRate("", "", atMost(2, 2))
	time.above, rate.above = true, true
	require.InDelta(t, 1.5, time.ratio(ours, floor), 1e-9)
	require.InDelta(t, 3, rate.ratio(ours, floor), 1e-9)
}

func TestLinesTakeTheMedianOfRounds(t *testing.T) {
	c := contest{sides: make([]side, 2), par: 1, metrics: []metric{addTime("2", "ADD", atLeast(2, 3)), delMetrics("7", "mass DEL", atLeast(1.5, 3))[0]}}
	c.metrics = against(1, c.metrics)
	peer := sampleOf(30, 1, 1)
	lines := c.lines([]round{{sampleOf(10, 1, 1), peer}, {sampleOf(30, 1, 1), peer}, {sampleOf(15, 1, 1), peer}})
	require.Len(t, lines, 1, "mass DEL is not measured one at a time")
	require.InDelta(t, 2, lines[0].got, 1e-9)
	require.Equal(t, "15.0 (30.0) ms", lines[0].ours)
	require.False(t, lines[0].missed())
}

func TestBounds(t *testing.T) {
	up, down := atLeast(2, 3), atMost(1.5, 1.2)
	for _, c := range []struct {
		b                 bound
		got               float64
		verdict, distance string
	}{
		{up, 3, ">= 2 met", ">= 3 reached"},
		{up, 2.4, ">= 2 met", ">= 3 at 80 %"},
		{up, 1.5, ">= 2 MISSED", ">= 3 at 50 %"},
		{up, math.NaN(), ">= 2 MISSED", ">= 3 unknown"},
		{down, 1, "<= 1.5 met", "<= 1.2 reached"},
		{down, 1.5, "<= 1.5 met", "<= 1.2 at 80 %"},
		{down, 2.4, "<= 1.5 MISSED", "<= 1.2 at 50 %"},
		{atMost(0, 0), 0, "<= 0 met", "<= 0 reached"},
		{atMost(0, 0), 2, "<= 0 MISSED", "<= 0 at 0 %"},
		{bound{}, 7, "-", "-"},
	} {
		require.Equal(t, c.verdict, c.b.verdict(c.got))
		require.Equal(t, c.distance, c.b.distance(c.got))
	}
}

func TestTableIsOneAndAligned(t *testing.T) {
	var out strings.Builder
	lines := []line{
		{row: "2", what: "ADD", load: "1 par", ours: "5 ms", peer: "15 ms", got: 3, unit: " x", bound: atLeast(2, 3)},
		{row: "11", what: "ADD / floor", load: "50 par", ours: "5 ms", peer: "2 ms", got: 2.5, unit: " x", bound: atMost(1.5, 1.5)},
	}
	require.NoError(t, render(&out, lines))
	text := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, text, 3)
	require.Equal(t, strings.Index(text[0], "gate"), strings.Index(text[1], ">= 2 met"))
	require.Contains(t, text[2], "2.5 x")
	gates, misses := missed(lines)
	require.Equal(t, [2]int{2, 1}, [2]int{gates, misses})
}
