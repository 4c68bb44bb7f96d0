package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// bound is what a figure is judged by: the gate must be met, the target is
// where we want to be. The zero bound judges nothing.
type bound struct {
	gate, target float64
	atMost       bool // small is good
}

func (b bound) judges() bool { return b != bound{} }

func (b bound) reached(got, limit float64) bool {
	if b.atMost {
		return got <= limit
	}
	return got >= limit
}

// verdict is the table's "gate" cell. A figure that could not be had (NaN)
// misses every gate.
func (b bound) verdict(got float64) string {
	switch {
	case !b.judges():
		return "-"
	case b.reached(got, b.gate):
		return b.limit(b.gate) + " met"
	default:
		return b.limit(b.gate) + " MISSED"
	}
}

// distance says how far the target is, as a part of the way in per cent.
func (b bound) distance(got float64) string {
	switch {
	case !b.judges():
		return "-"
	case b.reached(got, b.target):
		return b.limit(b.target) + " reached"
	case math.IsNaN(got):
		return b.limit(b.target) + " unknown"
	case b.atMost:
		return fmt.Sprintf("%s at %.0f %%", b.limit(b.target), 100*b.target/got)
	default:
		return fmt.Sprintf("%s at %.0f %%", b.limit(b.target), 100*got/b.target)
	}
}

func (b bound) limit(v float64) string {
	if b.atMost {
		return fmt.Sprintf("<= %.4g", v)
	}
	return fmt.Sprintf(">= %.4g", v)
}

// line is one row of the printed table.
type line struct {
	row        string // of spec/performance.md
	what, load string
	ours, peer string
	got        float64 // what the bound judges, mostly a ratio
	unit       string
	bound      bound
	floor      string // what the floor gets in place of ours: nothing can be better
}

func (l line) missed() bool { return l.bound.judges() && !l.bound.reached(l.got, l.bound.gate) }

// render prints the one table.
func render(w io.Writer, lines []line) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "#\twhat\tload\tours\tpeer or floor\tresult\tgate\ttarget\tthe floor gets")
	for _, l := range lines {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.row, l.what, l.load, l.ours, l.peer,
			figure(l.got, l.unit), l.bound.verdict(l.got), l.bound.distance(l.got), l.floor)
	}
	return tw.Flush()
}

func figure(v float64, unit string) string {
	if math.IsNaN(v) {
		return "not measured"
	}
	return fmt.Sprintf("%.4g%s", math.Round(v*100)/100, unit)
}

// missed counts the gates and those that were not met.
func missed(lines []line) (gates, misses int) {
	for _, l := range lines {
		if l.bound.judges() {
			gates++
		}
		if l.missed() {
			misses++
		}
	}
	return gates, misses
}
