package manager

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

// bus is the system bus's socket below /run.
const bus = "dbus/system_bus_socket"

// What systemd-networkd is on the bus (org.freedesktop.network1(5)).
const (
	networkdName = "org.freedesktop.network1"
	networkdPath = dbus.ObjectPath("/org/freedesktop/network1")
	networkdAPI  = networkdName + ".Manager"
)

// dial opens the bus. No bus is fs.ErrNotExist.
func (m *Machine) dial(ctx context.Context) (*dbus.Conn, error) {
	socket := filepath.Join(m.run, bus)
	if _, err := os.Stat(socket); err != nil {
		return nil, err
	}
	c, err := dbus.Connect("unix:path="+socket, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("system bus %s: %w", socket, err)
	}
	return c, nil
}

// Errors of the bus for one who is not there; nobody is started for being asked.
var absent = []string{"org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner"}

func isAbsent(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && slices.Contains(absent, e.Name)
}

// reload has systemd-networkd read its files. One that does not run reads them when it
// starts; one without a bus cannot be told.
func (m *Machine) reload(ctx context.Context) error {
	c, err := m.dial(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	err = c.Object(networkdName, networkdPath).CallWithContext(ctx, networkdAPI+".Reload", dbus.FlagNoAutoStart).Err
	if err != nil && !isAbsent(err) {
		return fmt.Errorf("have systemd-networkd read its files: %w", err)
	}
	return nil
}

// description is what is read of networkd's own of a link (org.freedesktop.network1(5),
// Describe).
type description struct {
	NetworkFile string
	Addresses   []struct {
		Address      []int // bytes
		ConfigSource string
	}
}

// renewing are sources of addresses that end unless they are renewed.
var renewing = []string{"DHCPv4", "DHCPv6", "DHCP-PD", "NDisc"}

// Keeps asks systemd-networkd what it has to do with a link. The zero value: it does not
// run, or cannot be asked (it tells since systemd 250), or leaves the link alone, or serves
// it by a file of ours that says so.
func (m *Machine) Keeps(ctx context.Context, index int) (Kept, error) {
	ctx, stop := context.WithTimeout(ctx, reacts)
	defer stop()
	c, err := m.dial(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return Kept{}, nil
	}
	if err != nil {
		return Kept{}, err
	}
	defer func() { _ = c.Close() }()
	var name, text string
	var link dbus.ObjectPath
	err = c.Object(networkdName, networkdPath).CallWithContext(ctx, networkdAPI+".GetLinkByIndex", dbus.FlagNoAutoStart, int32(index)).Store(&name, &link) //nolint:gosec // an index is an int32
	if err == nil {
		err = c.Object(networkdName, link).CallWithContext(ctx, networkdName+".Link.Describe", dbus.FlagNoAutoStart).Store(&text)
	}
	var refused dbus.Error
	if errors.As(err, &refused) { // by networkd, which answers: it has nothing to do with it
		return Kept{}, nil
	}
	if err != nil {
		return Kept{}, fmt.Errorf("ask systemd-networkd of link %d: %w", index, err)
	}
	return m.kept(text, index)
}

func (m *Machine) kept(text string, index int) (Kept, error) {
	var d description
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Kept{}, fmt.Errorf("what systemd-networkd says of link %d: %w", index, err)
	}
	k := Kept{File: d.NetworkFile}
	ours := strings.HasPrefix(filepath.Base(k.File), prefix)
	if ours { // of a NIC that was given back: what was its own before is it still
		k = recordIn(m.path(k.File))
		k.Addrs = nil
	}
	if k.File == "" {
		return Kept{}, nil
	}
	for _, a := range d.Addresses {
		if slices.Contains(renewing, a.ConfigSource) {
			b := make([]byte, 0, len(a.Address))
			for _, one := range a.Address {
				b = append(b, byte(one)) //nolint:gosec // a byte each
			}
			if ip, ok := netip.AddrFromSlice(b); ok {
				k.Addrs = append(k.Addrs, ip)
			}
		}
	}
	if len(k.Addrs) > 0 && !ours {
		k.IAID = m.iaid(index)
	}
	return k, nil
}

// iaid is by what a DHCP server knows the link's client: networkd makes it of the link's
// name, and would make another one for another link. It tells it in its record of the lease
// alone, as the client identifier (RFC 4361: 255, four bytes, and the machine's own).
func (m *Machine) iaid(index int) uint32 {
	text, err := os.ReadFile(filepath.Join(m.run, "systemd", "netif", "leases", strconv.Itoa(index)))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		id, ok := strings.CutPrefix(strings.TrimSpace(line), "CLIENTID=")
		if b, err := hex.DecodeString(id); ok && err == nil && len(b) > 5 && b[0] == 255 {
			return uint32(b[1])<<24 | uint32(b[2])<<16 | uint32(b[3])<<8 | uint32(b[4])
		}
	}
	return 0
}
