package main

import (
	"math"
	"slices"
	"time"
)

// phase is what a batch of equal operations cost.
type phase struct {
	took []time.Duration // each operation, from exec to exit
	wall time.Duration   // from the first start to the last end
	cpu  time.Duration   // plugins and daemons, user + system
}

// join adds another batch of the same kind.
func (p *phase) join(o phase) {
	p.took = append(p.took, o.took...)
	p.wall += o.wall
	p.cpu += o.cpu
}

// quantile is the nearest-rank quantile in milliseconds; q is from 0 to 1.
func (p phase) quantile(q float64) float64 {
	if len(p.took) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(p.took))
	rank := int(math.Ceil(q*float64(len(s)))) - 1
	return millis(s[min(max(rank, 0), len(s)-1)])
}

func (p phase) p50() float64 { return p.quantile(0.50) }
func (p phase) p99() float64 { return p.quantile(0.99) }

// cpuEach is the processor time of one operation in milliseconds.
func (p phase) cpuEach() float64 { return millis(p.cpu) / float64(len(p.took)) }

// rate is operations per second.
func (p phase) rate() float64 { return float64(len(p.took)) / p.wall.Seconds() }

// sample is one run of a side: pods attached, then detached.
type sample struct {
	add, del phase
	clean    time.Duration // from the first DEL until kernel and OVS are clean
}

func (s *sample) join(o sample) {
	s.add.join(o.add)
	s.del.join(o.del)
	s.clean += o.clean
}

// median of the values; NaN when there are none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
