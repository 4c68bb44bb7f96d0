package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// phase is what a batch of equal operations cost.
type phase struct {
	took []time.Duration // each operation, from exec to exit
	part []time.Duration // what of each was the network's, where a runtime says it
	wall time.Duration   // from the first start to the last end
	done time.Duration   // the same until everything that the calls caused is done
	cpu  bill
	more time.Duration // what of all of them the peer does not do, see splitter
}

// bill is processor time, user + system, by who used it.
type bill struct{ plugin, agent, ovs, api time.Duration }

func (b bill) sum() time.Duration { return b.plugin + b.agent + b.ovs + b.api }

func (b bill) plus(o bill) bill {
	return bill{b.plugin + o.plugin, b.agent + o.agent, b.ovs + o.ovs, b.api + o.api}
}

func (b bill) minus(o bill) bill {
	return bill{b.plugin - o.plugin, b.agent - o.agent, b.ovs - o.ovs, b.api - o.api}
}

// join adds another batch of the same kind.
func (p *phase) join(o phase) {
	p.took = append(p.took, o.took...)
	p.part = append(p.part, o.part...)
	p.wall += o.wall
	p.done += o.done
	p.cpu = p.cpu.plus(o.cpu)
	p.more += o.more
}

// quantile is the nearest-rank quantile in milliseconds; q is from 0 to 1.
func quantile(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(took))
	rank := int(math.Ceil(q*float64(len(s)))) - 1
	return millis(s[min(max(rank, 0), len(s)-1)])
}

func (p phase) p50() float64 { return quantile(p.took, 0.50) }
func (p phase) p99() float64 { return quantile(p.took, 0.99) }

// less is the mean time of an operation in milliseconds, without what the peer does not do.
func (p phase) less() float64 {
	sum := -p.more
	for _, t := range p.took {
		sum += t
	}
	return p.each(sum)
}

// cpuEach is the processor time of one operation in milliseconds.
func (p phase) cpuEach() float64 { return p.each(p.cpu.sum()) }

// each is the share of one operation in milliseconds.
func (p phase) each(d time.Duration) float64 { return millis(d) / float64(len(p.took)) }

// bill tells who used the processor time of one operation.
func (p phase) bill() string {
	if p.cpu.sum() == p.cpu.plugin {
		return fmt.Sprintf("%.1f ms", p.cpuEach())
	}
	parts := fmt.Sprintf("plugin %.1f, agent %.1f", p.each(p.cpu.plugin), p.each(p.cpu.agent))
	if p.cpu.ovs > 0 {
		parts += fmt.Sprintf(", OVS %.1f", p.each(p.cpu.ovs))
	}
	if p.cpu.api > 0 {
		parts += fmt.Sprintf(", API %.1f", p.each(p.cpu.api))
	}
	return fmt.Sprintf("%.1f ms (%s)", p.cpuEach(), parts)
}

// rate is operations per second.
func (p phase) rate() float64 { return float64(len(p.took)) / p.wall.Seconds() }

// sample is one run of a side: pods attached, then detached.
type sample struct {
	add, del phase
	// From the first DEL until no interface and no port row is left, and until
	// ovs-vswitchd has followed.
	clean, followed time.Duration
}

func (s *sample) join(o sample) {
	s.add.join(o.add)
	s.del.join(o.del)
	s.clean += o.clean
	s.followed += o.followed
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
