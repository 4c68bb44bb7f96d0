// Package manager tells the programs that give a machine's links their addresses,
// systemd-networkd and NetworkManager, which links are not theirs, and leads
// systemd-networkd to another link with what it renews on one. All that it writes is below
// /run: after a reboot a machine is as without us. It must not know what links are for.
package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Machine is where the managers run. Its methods must not be called at the same time.
type Machine struct {
	run  string
	told map[string]bool // ports of which Give has told in this process
}

// New is the machine with this /run.
func New(run string) *Machine { return &Machine{run: run, told: map[string]bool{}} }

// Kept is what systemd-networkd has to do with a link; the zero value is nothing.
type Kept struct {
	File  string       `json:",omitempty"` // of the settings it serves the link by, as it names it
	Addrs []netip.Addr `json:",omitempty"` // that it renews, by DHCP or router advertisements
	IAID  uint32       `json:",omitempty"` // by which servers know its DHCP clients there (RFC 4361); 0 where nothing says
}

// Links are those of a transfer, by name.
type Links struct {
	Port   string // belongs to nobody but Open vSwitch
	Device string // has the addresses instead
}

// reacts bounds how long a manager may take to answer.
const reacts = 10 * time.Second

// Folders below /run: systemd-networkd's files, which is there where somebody has put one,
// and what it knows, and NetworkManager's.
const (
	networkdHome  = "systemd/network"
	networkdState = "systemd/netif"
	nmHome        = "NetworkManager"
)

// Hold has no manager touch a transfer's device, which is about to come. What was said of it
// before stays so.
func (m *Machine) Hold(ctx context.Context, device string) error {
	if exists(m.networkd(device)) || exists(m.nm(device)) {
		return nil
	}
	return m.tell(ctx, map[string]string{device: notOurs(device, Kept{})}, device)
}

// Give has no manager touch a transfer's port, and systemd-networkd go on on its device
// with what it renews on the port, the link with that index. What it renewed there before
// counts while it says nothing: it may have begun to serve the link only now. Give tells
// what there is to Return.
func (m *Machine) Give(ctx context.Context, l Links, index int, before Kept) (Kept, error) {
	if m.told[l.Port] && (exists(m.networkd(l.Port)) || exists(m.nm(l.Port))) {
		return before, nil
	}
	now, err := m.Keeps(ctx, index)
	if err != nil {
		return before, err
	}
	k := before
	if k.File == "" {
		k = m.recorded(l.Device)
	}
	if now.File != "" && (len(now.Addrs) > 0 || len(k.Addrs) == 0) {
		k = now
	}
	device, err := m.device(l.Device, k)
	if err != nil {
		return before, err
	}
	delete(m.told, l.Port) // both files, and the news of them, or all again
	err = m.tell(ctx, map[string]string{l.Port: notOurs(l.Port, Kept{}), l.Device: device}, l.Port, l.Device)
	m.told[l.Port] = err == nil
	return k, err
}

// device is the file of a transfer's device. One that is led by settings that have another
// name now goes on as it is.
func (m *Machine) device(name string, k Kept) (string, error) {
	if len(k.Addrs) == 0 {
		return notOurs(name, k), nil
	}
	text, err := m.led(name, k)
	if has, failed := os.ReadFile(m.networkd(name)); errors.Is(err, fs.ErrNotExist) && failed == nil && m.recorded(name).File != "" {
		return string(has), nil
	}
	return text, err
}

// recorded is what was kept of a transfer, as its device's file says it.
func (m *Machine) recorded(device string) Kept { return recordIn(m.networkd(device)) }

// recordIn is the record in a file of ours, the zero value for none.
func recordIn(name string) (k Kept) {
	text, _ := os.ReadFile(name)
	for line := range strings.Lines(string(text)) {
		if kept, ok := strings.CutPrefix(line, keptLine); ok {
			_ = json.Unmarshal([]byte(kept), &k) // what is no record says nothing
		}
	}
	return k
}

// Return undoes Give and Hold: the managers serve the NIC, of whatever name, as they did
// before; systemd-networkd keeps what it finds on it. The device is about to go.
func (m *Machine) Return(ctx context.Context, l Links, nic string) error {
	files := map[string]string{l.Port: gone, l.Device: gone}
	if k := m.recorded(l.Device); k.File != "" {
		text, err := m.led(nic, k)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // whoever took it away does not want it
			return err
		}
		files[nic] = cmp.Or(text, gone)
	}
	delete(m.told, l.Port)
	return m.tell(ctx, files)
}

// Forget takes away what is said of a link that is no more.
func (m *Machine) Forget(ctx context.Context, link string) error {
	return m.tell(ctx, map[string]string{link: gone})
}

// gone, as a text, is no file.
const gone = "-"

// prefix is what names of systemd-networkd's files of ours begin with.
const prefix = "05-fairlead-"

// header is what each file begins with, and keptLine what the record of Kept does.
const (
	header   = "# Of provider networks (fairlead agent): "
	keptLine = "# Kept: "
)

// notOurs has systemd-networkd leave a link alone, as if it were in its own words.
func notOurs(link string, k Kept) string {
	return header + "not for systemd-networkd.\n" + record(k) + "[Match]\nName=" + link + "\n\n[Link]\nUnmanaged=yes\n"
}

func record(k Kept) string {
	text, err := json.Marshal(k)
	if err != nil || k.File == "" {
		return ""
	}
	return keptLine + string(text) + "\n"
}

// tell makes systemd-networkd's files, by link, and has it read them; and has NetworkManager
// leave alone those of the links that are listed besides, from when it starts: one that
// learns while it runs that a link is not its own takes the link down (1.42).
func (m *Machine) tell(ctx context.Context, files map[string]string, alone ...string) error {
	ctx, stop := context.WithTimeout(ctx, reacts)
	defer stop()
	theirs := map[string]string{}
	for link := range files {
		theirs[link] = gone
		if slices.Contains(alone, link) {
			theirs[link] = header + "not for NetworkManager.\n[keyfile]\nunmanaged-devices+=interface-name:" + link + "\n"
		}
	}
	var errs []error
	if m.has(networkdHome) || m.has(networkdState) {
		errs = append(errs, write(m.networkd, files), m.reload(ctx))
	}
	if m.has(nmHome) {
		errs = append(errs, write(m.nm, theirs))
	}
	return errors.Join(errs...)
}

// has tells that a folder is there.
func (m *Machine) has(home string) bool { return exists(filepath.Join(m.run, home)) }

// write makes one manager's files.
func write(name func(link string) string, files map[string]string) error {
	var errs []error
	for link, text := range files {
		errs = append(errs, put(name(link), text))
	}
	return errors.Join(errs...)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// networkd is systemd-networkd's file of a link: it comes before those that match others
// too.
func (m *Machine) networkd(link string) string {
	return filepath.Join(m.run, networkdHome, prefix+link+".network")
}

// nm is NetworkManager's of a link.
func (m *Machine) nm(link string) string {
	return filepath.Join(m.run, nmHome, "conf.d", "fairlead-"+link+".conf")
}

// put makes a file, or removes it.
func put(name, text string) error {
	has, err := os.ReadFile(name)
	switch {
	case text == gone:
		return hostfile.Remove(name)
	case err == nil && string(has) == text:
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // the managers run as others
		return err
	}
	return hostfile.Write(name, []byte(text), 0o644)
}

// folders are where systemd-networkd has its files; of two with one name the first counts.
var folders = []string{"/etc/systemd/network", "/run/systemd/network", "/usr/local/lib/systemd/network", "/usr/lib/systemd/network", "/lib/systemd/network"}

// led is the file by which systemd-networkd serves a link as Kept says of another one, and
// finds there what it is to renew: it keeps that (systemd.network(5), KeepConfiguration).
// The file that it read is gone: fs.ErrNotExist.
func (m *Machine) led(link string, k Kept) (string, error) {
	texts := []string{k.File}
	seen := map[string]bool{}
	for _, dir := range folders {
		more, _ := filepath.Glob(filepath.Join(m.path(dir), filepath.Base(k.File)+".d", "*.conf"))
		for _, name := range more {
			if base := filepath.Base(name); !seen[base] {
				seen[base] = true
				texts = append(texts, name)
			}
		}
	}
	// Names decide in which order, wherever they lie.
	slices.SortStableFunc(texts[1:], func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s has what %s says.\n# Without this file that one counts again, after a reboot or networkctl reload.\n%s[Match]\nName=%s\n", header, link, k.File, record(k), link)
	for i, name := range texts {
		if i == 0 {
			name = m.path(name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("settings of systemd-networkd: %w", err)
		}
		b.WriteString("\n" + without(string(text), "[Match]"))
	}
	b.WriteString("\n[Network]\nKeepConfiguration=yes\n")
	if k.IAID != 0 {
		fmt.Fprintf(&b, "\n[DHCPv4]\nIAID=%d\n\n[DHCPv6]\nIAID=%d\n", k.IAID, k.IAID)
	}
	return b.String(), nil
}

// path is where a file of the machine's is: below another /run in tests.
func (m *Machine) path(name string) string {
	if rest, ok := strings.CutPrefix(name, "/run/"); ok {
		return filepath.Join(m.run, rest)
	}
	return name
}

// without is a file of sections without those of one name, nor comments.
func without(text, section string) string {
	var b strings.Builder
	in := false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "[") {
			in = trimmed == section
		}
		if !in && trimmed != "" && !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, ";") {
			b.WriteString(trimmed + "\n")
		}
	}
	return b.String()
}
