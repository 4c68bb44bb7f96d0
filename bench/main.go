// Command bench measures Fairlead against its peers, or against the least that
// the same work can cost, and prints one table. Each side runs on a node of
// its own (network and mount namespace, Open vSwitch); both sides take turns.
// It knows Fairlead only as programs: bin/fairlead, bin/fairlead-cni and
// bin/fairlead-controller, but for what an address and a lease cost alone; of the test
// bed it has images and cgroups.
//
// What is measured, the protocol, the gates and the targets are those of the
// project's performance specification; README.md explains the table.
// `make bench` builds what it needs and runs it as root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bench is one execution.
type bench struct {
	root   string // the checkout
	dir    string // scratch, on disk
	quick  bool
	inVM   bool // it is row 18, in the VM
	scale  bool // the rows are those of a large cluster
	rounds int
	nodes  int
	notes  []string
}

// row is one or several rows of the specification.
type row struct {
	ids string
	run func(*bench) ([]line, error)
}

var rows = []row{
	{"1", versionRow}, {"2", bridgeRow}, {"3", portsRow}, {"2o,7,11", switchRow}, {"4", multusRow}, {"5", vlanRow}, {"6", ovnRow}, {"9", idleRow}, {"10", journalRow}, {"15", gatewayRow}, {"15", filterRow}, {"16", deviceRow}, {"18", vfRow},
	{"17", claimRow}, {"17", poolRow}, {"17", unsetRow},
	{"8", controllerRow}, {"8,8i", ipamRow}, {"12,13", containerdRow}, {"13", dockerRow}, {"14", memoryRow},
}

func main() {
	only := flag.String("rows", "", "only these rows, e.g. 1,10 (2o, 7 and 11 are measured together, and 12 with a part of 13; 8i is the part of 8 that needs no cluster)")
	scale := flag.Bool("scale", false, "in place of the rows: one controller for a large cluster (make bench-scale)")
	quick := flag.Bool("quick", false, "one round of smaller batches: to try a change, not to judge it")
	root := flag.String("root", "..", "the checkout")
	guest := flag.Bool("guest", false, "row 18 as it is measured in its VM, whose report goes to standard output")
	flag.Parse()
	if err := run(*root, *only, bench{quick: *quick, scale: *scale, inVM: *guest}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(root, only string, b bench) (err error) {
	b.rounds = 3
	if b.quick {
		b.rounds = 1
	}
	if b.root, err = filepath.Abs(root); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(filepath.Join(b.root, ".cache"), "bench-run-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.inVM {
		return b.guest(os.Stdout)
	}
	if err := b.prepare(); err != nil {
		return err
	}
	begun := time.Now()
	lines, err := b.measure(only)
	b.note("whole run %s", time.Since(begun).Round(time.Second))
	return errors.Join(err, b.print(lines))
}

// measure runs the rows; one that fails does not stop the others.
func (b *bench) measure(only string) (lines []line, err error) {
	all := rows
	if b.scale {
		all, only = []row{{"scale", scaleRow}}, ""
	}
	for _, r := range all {
		if !wanted(only, r.ids) {
			continue
		}
		begun := time.Now()
		got, failed := r.run(b)
		fmt.Fprintf(os.Stderr, "row %s: %s\n", r.ids, time.Since(begun).Round(time.Second))
		lines = append(lines, got...)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("row %s: %w", r.ids, failed))
		}
	}
	return lines, err
}

// wanted tells that two lists share an element; no list means all.
func wanted(only, ids string) bool {
	return only == "" || slices.ContainsFunc(strings.Split(ids, ","), func(id string) bool {
		return slices.Contains(strings.Split(only, ","), id)
	})
}

func (b *bench) print(lines []line) error {
	if err := render(os.Stdout, lines); err != nil {
		return err
	}
	gates, misses := missed(lines)
	fmt.Printf("\n%d of %d gates met\n", gates-misses, gates)
	for _, n := range b.notes {
		fmt.Println("-", n)
	}
	return nil
}

func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// newNode makes a node with pods.
func (b *bench) newNode(pods int) (*node, error) {
	b.nodes++
	n, err := newNode(filepath.Join(b.dir, fmt.Sprintf("node%d", b.nodes)))
	if err != nil {
		return nil, err
	}
	if err := n.morePods(pods); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// Paths of what is measured.
func (b *bench) bin(name string) string  { return filepath.Join(b.root, "bin", name) }
func (b *bench) tool(name string) string { return filepath.Join(b.root, ".cache", "bin", name) }
func (b *bench) peer(name string) string { return filepath.Join(b.root, ".cache", "bench", name) }

// kube is a program of Kubernetes, of whatever version was built.
func (b *bench) kube(name string) string {
	found, _ := filepath.Glob(filepath.Join(b.root, ".cache", "kube", "v*", name)) // the pattern is good
	if len(found) == 0 {
		return name
	}
	return found[len(found)-1]
}
