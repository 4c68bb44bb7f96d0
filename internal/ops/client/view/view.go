// Package view writes the agent's answers as text for people: aligned tables
// and sections. It has the plain questions too, each as a row. It is pure (values in, text out) and knows no agent, no socket
// and no flags; the clock is an argument.
package view

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// none stands in a cell that has no value, so that columns can be cut by awk.
const none = "-"

// Options are what all tables share.
type Options struct {
	Wide bool
	Now  time.Time // ages are counted from here
	// Cluster: the values are the Kubernetes API's. Tables have the node, and
	// not the columns that only a node can fill: in these "-" would say "none".
	Cluster bool
}

// table collects rows and aligns them at the end.
type table struct {
	tw *tabwriter.Writer
}

// newTable writes the header. Wide columns are given apart.
func newTable(w io.Writer, o Options, columns, wide []string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	t.row(o, columns, wide)
	return t
}

func (t table) row(o Options, cells, wide []string) {
	if o.Wide {
		cells = append(cells[:len(cells):len(cells)], wide...)
	}
	line := strings.Builder{}
	for i, c := range cells {
		if i > 0 {
			line.WriteByte('\t')
		}
		line.WriteString(orNone(Printable(c)))
	}
	_, _ = fmt.Fprintln(t.tw, line.String()) // tabwriter keeps the error for Flush
}

func (t table) end() error {
	if err := t.tw.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// Printable keeps a value on its line and in its column, and a name that a
// tenant chose from steering a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// number is "" for zero: a VLAN or MTU that is not there.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func join[T fmt.Stringer](list []T) string {
	text := make([]string, len(list))
	for i, v := range list {
		text[i] = v.String()
	}
	return strings.Join(text, ",")
}

// addrs are the addresses without their prefix lengths.
func addrs(list []netip.Prefix) string {
	out := make([]netip.Addr, len(list))
	for i, p := range list {
		out[i] = p.Addr()
	}
	return join(out)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// age is a duration in its two largest units: 12s, 3m5s, 3h10m, 2d4h.
func age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return span(now.Sub(since))
}

func span(d time.Duration) string {
	d = max(d, 0)
	s := int(d.Seconds())
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%dh%dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s%86400/3600)
}

// short is a container id as people quote it; the host interface's name starts
// with the same twelve characters.
func short(id string) string { return id[:min(len(id), 12)] }
