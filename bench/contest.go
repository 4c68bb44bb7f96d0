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
	peer  int  // index in contest.sides of whom ours is compared with
	speed bool // a large value is good
	above bool // the ratio says how far ours is above the peer, a floor
	floor bool // what the floor does for it is the least
	bound bound
	from  int // the least number of calls in parallel at which it is meant
}

// ratio is above 1 when ours is better, or, above a floor, when ours is worse.
func (m metric) ratio(ours, peer sample) float64 {
	if m.speed != m.above {
		return m.value(ours) / m.value(peer)
	}
	return m.value(peer) / m.value(ours)
}

// contest is one case of a row: all sides do the same work in turns. Ours is
// the first.
type contest struct {
	sides   []side
	floor   int // index of the side that does the least, for metrics that ask for it
	load    string
	pods    int // how many each run attaches
	par     int // calls at a time
	delPar  int // the same of DEL, where more: its times then say nothing
	rounds  int
	metrics []metric
}

// warmups is how many pods each side attaches unmeasured before a contest.
const warmups = 2

// round is A B A B: two runs of each side, in turns.
type round []sample

// run measures the contest and gives one line for each metric.
func (c contest) run() ([]line, error) {
	for _, s := range c.sides {
		if _, err := cycle(s, pick(s, warmups), 1, 1); err != nil {
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

func (c contest) round() (round, error) {
	r := make(round, len(c.sides))
	for range 2 {
		for i, s := range c.sides {
			got, err := cycle(s, pick(s, c.pods), c.par, max(c.par, c.delPar))
			if err != nil {
				return nil, err
			}
			r[i].join(got)
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
	all := make(round, len(c.sides))
	for _, r := range rounds {
		for i := range r {
			all[i].join(r[i])
		}
	}
	var out []line
	for _, m := range c.metrics {
		if c.par < m.from {
			continue
		}
		l := line{row: m.row, what: m.what, load: c.load, ours: m.show(all[0]), peer: m.show(all[m.peer]),
			got: medianRatio(rounds, m, 0), unit: " x", bound: m.bound}
		if m.floor {
			l.floor = figure(medianRatio(rounds, m, c.floor), l.unit)
		}
		out = append(out, l)
	}
	return out
}

// medianRatio is the median of the rounds' ratios of one side to the peer.
func medianRatio(rounds []round, m metric, side int) float64 {
	var ratios []float64
	for _, r := range rounds {
		ratios = append(ratios, m.ratio(r[side], r[m.peer]))
	}
	return median(ratios)
}

// stand attaches the node's first pods, which then stay.
func stand(s side, count int) error {
	if count == 0 {
		return nil
	}
	pods := s.Node().pods[:count]
	if err := renew(s, pods); err != nil {
		return err
	}
	_, err := batch(s, "ADD", pods, 10)
	return errors.Join(err, s.Settle())
}
