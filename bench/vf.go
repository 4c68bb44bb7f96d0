package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Row 18: virtual functions of a card. This machine has none, so it is measured in the VM of
// the tests, by this program again: guest.go is what it does there.

const (
	guestVFs   = 7    // as many as the VM's card has
	guestLimit = 1800 // seconds
)

// told is a line as the guest tells it.
type told struct {
	Row, What, Load, Ours, Peer string
	Got                         float64
	Unit                        string
	Gate, Target                float64
	AtMost                      bool
}

// report is all that the guest tells.
type report struct {
	Lines []told
	Notes []string
}

func tell(l line) told {
	return told{l.row, l.what, l.load, l.ours, l.peer, l.got, l.unit, l.bound.gate, l.bound.target, l.bound.atMost}
}

func (t told) line() line {
	return line{row: t.Row, what: t.What, load: t.Load, ours: t.Ours, peer: t.Peer, got: t.Got, unit: t.Unit, bound: bound{t.Gate, t.Target, t.AtMost}}
}

// vfRow is row 18.
func vfRow(b *bench) ([]line, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	argv := []string{self, "-guest", "-root=" + b.root, "-quick=" + strconv.FormatBool(b.quick)}
	r, err := b.boot(filepath.Join(b.root, "test", "vm", "vmrun"), argv)
	if err != nil {
		return nil, err
	}
	b.notes = append(b.notes, r.Notes...)
	var lines []line
	for _, t := range r.Lines {
		lines = append(lines, t.line())
	}
	return lines, nil
}

// boot runs a command in the VM by a script as test/vm/vmrun. The VM ends with this
// process.
func (b *bench) boot(vmrun string, command []string) (r report, err error) {
	cmd := exec.Command(vmrun, append([]string{"--vfs", strconv.Itoa(guestVFs), "--timeout", strconv.Itoa(guestLimit), "--"}, command...)...)
	cmd.Env = append(os.Environ(), "VMRUN_CACHE="+filepath.Join(b.root, ".cache", "vm"), "TMPDIR="+b.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("in the VM: %w: %s", err, strings.TrimSpace(said.String()))
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("the VM's report: %w: %q, %s", err, out.String(), said.String())
	}
	if len(r.Lines) == 0 {
		return r, errors.New("the VM's report has no lines")
	}
	return r, nil
}
