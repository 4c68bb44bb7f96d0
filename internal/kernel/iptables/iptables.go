// Package iptables reads and changes rules by the programs iptables-save and
// iptables-restore: one process reads a family's tables, one changes them, each table
// at once. It knows chains and lines, as these programs write them, and not what
// rules are for; what a change does not name stays as it is.
package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Backend is where the kernel keeps rules: nf_tables, or the older xtables. A machine
// may have rules in both, and all of them are in force.
type Backend string

// Values of Backend.
const (
	Default Backend = "" // what the machine's `iptables` is
	NFT     Backend = "nft"
	Legacy  Backend = "legacy"
)

// Tables are a family's rules in one backend.
type Tables struct {
	Chains map[string][]Chain // by table, in the order that they were read in
}

// Chain has rules as iptables-save writes them, without "-A CHAIN ".
type Chain struct {
	Name  string
	Rules []string
}

// Chain finds a chain of a table.
func (t Tables) Chain(table, name string) (Chain, bool) {
	for _, c := range t.Chains[table] {
		if c.Name == name {
			return c, true
		}
	}
	return Chain{}, false
}

// Count is how many rules there are.
func (t Tables) Count() (n int) {
	for _, chains := range t.Chains {
		for _, c := range chains {
			n += len(c.Rules)
		}
	}
	return n
}

// ErrNotInstalled is why there are no rules of iptables.
var ErrNotInstalled = errors.New("iptables is not installed")

// Installed tells which backends the machine has programs for, Default if none has a
// name of its own. None at all is ErrNotInstalled.
func Installed() (out []Backend, err error) {
	for _, b := range []Backend{NFT, Legacy} {
		if _, err := exec.LookPath(program(false, b, "restore")); err == nil {
			out = append(out, b)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if _, err := exec.LookPath(program(false, Default, "restore")); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	return []Backend{Default}, nil
}

// Usual is the backend of the machine's `iptables`.
func Usual() Backend {
	name, err := exec.LookPath(program(false, Default, "restore"))
	if err == nil {
		name, err = filepath.EvalSymlinks(name)
	}
	if err == nil && strings.Contains(filepath.Base(name), string(Legacy)) {
		return Legacy
	}
	return NFT
}

// UsesLegacy tells whether a family has tables of xtables in ns (nil: the current
// namespace). To run the program that reads them would make some.
func UsesLegacy(ns *netns.Handle, v6 bool) (used bool, err error) {
	name := "/proc/thread-self/net/ip_tables_names"
	if v6 {
		name = "/proc/thread-self/net/ip6_tables_names"
	}
	err = ns.Do(func() error {
		b, err := os.ReadFile(name)
		used = len(bytes.TrimSpace(b)) > 0
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	return used, err
}

func program(v6 bool, b Backend, what string) string {
	parts := []string{"iptables"}
	if v6 {
		parts[0] = "ip6tables"
	}
	if b != Default {
		parts = append(parts, string(b))
	}
	return strings.Join(append(parts, what), "-")
}

// Read gives a family's tables as one process reads them.
func Read(ctx context.Context, ns *netns.Handle, v6 bool, b Backend) (Tables, error) {
	out, err := run(ctx, ns, "", program(v6, b, "save"))
	if err != nil {
		return Tables{}, err
	}
	t, err := parse(out)
	if err != nil {
		return Tables{}, fmt.Errorf("%s: %w", program(v6, b, "save"), err)
	}
	return t, nil
}

// parse fails on a line that is longer than any rule: what stands behind it is not known.
func parse(text []byte) (Tables, error) {
	t := Tables{Chains: map[string][]Chain{}}
	table := ""
	at := map[string]int{} // of the table
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			clear(at)
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			at[name] = len(t.Chains[table])
			t.Chains[table] = append(t.Chains[table], Chain{Name: name})
		case strings.HasPrefix(line, "-A "):
			name, rule, _ := strings.Cut(line[3:], " ")
			if i, ok := at[name]; ok {
				c := &t.Chains[table][i]
				c.Rules = append(c.Rules, rule)
			}
		}
	}
	return t, lines.Err()
}

// Change is what is to become of one family's tables.
type Change struct {
	// Chains are made, or emptied, and filled; in their order.
	Chains map[string][]Chain
	// Lines are done next, each a command without the table: "-I CHAIN 1 RULE".
	Lines map[string][]string
	// Gone are chains that nothing leads to any more.
	Gone map[string][]string
}

// Empty tells that nothing is to become of them.
func (c Change) Empty() bool { return len(c.Chains)+len(c.Lines)+len(c.Gone) == 0 }

// String is the change as iptables-restore reads it.
func (c Change) String() string {
	var b strings.Builder
	for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
		chains, lines, gone := c.Chains[table], c.Lines[table], c.Gone[table]
		if len(chains)+len(lines)+len(gone) == 0 {
			continue
		}
		fmt.Fprintf(&b, "*%s\n", table)
		for _, ch := range chains {
			fmt.Fprintf(&b, ":%s - [0:0]\n", ch.Name)
		}
		for _, name := range gone {
			fmt.Fprintf(&b, ":%s - [0:0]\n", name)
		}
		for _, ch := range chains {
			for _, r := range ch.Rules {
				fmt.Fprintf(&b, "-A %s %s\n", ch.Name, r)
			}
		}
		for _, l := range lines {
			fmt.Fprintln(&b, l)
		}
		for _, name := range gone {
			fmt.Fprintf(&b, "-X %s\n", name)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// lockWait is how long another program may hold the lock of xtables, in seconds.
const lockWait = "5"

// Restore makes a change by one process: of each table all or nothing.
func Restore(ctx context.Context, ns *netns.Handle, v6 bool, b Backend, c Change) error {
	if c.Empty() {
		return nil
	}
	_, err := run(ctx, ns, c.String(), program(v6, b, "restore"), "--noflush", "-w", lockWait)
	return err
}

func run(ctx context.Context, ns *netns.Handle, in, name string, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // names of programs stand above
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &said
	if err := ns.Do(cmd.Run); err != nil { // Do's thread starts it, which is so born in the namespace
		return nil, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}
