package main

import (
	"errors"
	"fmt"
)

// metric turns a side's sample into a figure, and two figures into a ratio.
type metric struct {
	row   string
	what  string
	value func(sample) float64
	show  func(sample) string
	speed bool // a large value is good; the ratio is ours/peer, not peer/ours
	bound bound
	from  int // the least number of calls in parallel at which it is meant
}

// ratio is above 1 when ours is better, unless the bound says atMost: then it
// is how much worse than the floor ours is.
func (m metric) ratio(ours, peer sample) float64 {
	if m.speed != m.bound.atMost {
		return m.value(ours) / m.value(peer)
	}
	return m.value(peer) / m.value(ours)
}

// contest is one case of a row: ours and a peer do the same work in turns.
type contest struct {
	ours, peer side
	load       string
	pods       int // how many each run attaches
	par        int // calls at a time
	rounds     int
	metrics    []metric
}

// warmups is how many pods each side attaches unmeasured before a contest.
const warmups = 2

// round is A B A B: two runs of each side, in turns.
type round struct{ ours, peer sample }

// run measures the contest and gives one line for each metric.
func (c contest) run() ([]line, error) {
	for _, s := range []side{c.ours, c.peer} {
		if _, err := cycle(s, pick(s, warmups), 1); err != nil {
			return nil, fmt.Errorf("warm-up: %w", err)
		}
	}
	var rounds []round
	for range c.rounds {
		r, err := c.round()
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	return c.lines(rounds), nil
}

func (c contest) round() (r round, err error) {
	for range 2 {
		for _, turn := range []struct {
			s   side
			sum *sample
		}{{c.ours, &r.ours}, {c.peer, &r.peer}} {
			got, err := cycle(turn.s, pick(turn.s, c.pods), c.par)
			if err != nil {
				return r, err
			}
			turn.sum.join(got)
		}
	}
	return r, nil
}

// pick takes the last pods: the first may be standing ones.
func pick(s side, count int) []*pod {
	all := s.Node().pods
	return all[len(all)-count:]
}

func (c contest) lines(rounds []round) []line {
	var all round
	for _, r := range rounds {
		all.ours.join(r.ours)
		all.peer.join(r.peer)
	}
	var out []line
	for _, m := range c.metrics {
		if c.par < m.from {
			continue
		}
		var ratios []float64
		for _, r := range rounds {
			ratios = append(ratios, m.ratio(r.ours, r.peer))
		}
		out = append(out, line{row: m.row, what: m.what, load: c.load, ours: m.show(all.ours), peer: m.show(all.peer),
			got: median(ratios), unit: " x", bound: m.bound})
	}
	return out
}

// stand attaches the node's first pods, which then stay.
func stand(s side, count int) error {
	if count == 0 {
		return nil
	}
	pods := s.Node().pods[:count]
	s.Node().renew(pods)
	_, err := batch(s, "ADD", pods, 10)
	return errors.Join(err, s.Settle())
}
