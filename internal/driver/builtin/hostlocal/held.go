package hostlocal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Kept implements driver.Keeper: the addresses that have a file in the folders of the
// calls' networks, each folder read once, by the networks' names. It takes no lock.
func (p *Plugin) Kept(calls []core.Exec) (kept []driver.Kept, failed []error) {
	type network struct{ dataDir, name string }
	var all []network
	for _, call := range calls {
		var c struct{ IPAM struct{ DataDir string } }
		if json.Unmarshal(call.Conf, &c) != nil {
			continue // who reads it otherwise has other files
		}
		if n := (network{c.IPAM.DataDir, call.Network}); !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b network) int { return strings.Compare(a.name+a.dataDir, b.name+b.dataDir) })
	for _, n := range all {
		found, err := list(n.name, folder(&allocator.IPAMConfig{DataDir: n.dataDir, Name: n.name}))
		kept = append(kept, found...)
		if err != nil {
			failed = append(failed, fmt.Errorf("network %s: %w", n.name, err))
		}
	}
	return kept, failed
}

// list reads the folder of a network. Of one that is not there it is empty; an error
// comes with what could be read.
func list(network, dir string) ([]driver.Kept, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	var out []driver.Kept
	for _, e := range entries {
		addr, notIP := netip.ParseAddr(e.Name())
		if notIP != nil || !e.Type().IsRegular() {
			continue
		}
		h := driver.Kept{Network: network, Address: addr, File: filepath.Join(dir, e.Name())}
		h.Still = func() bool { now, err := ownerOf(h.File); return err == nil && now == h.Owner }
		switch h.Owner, err = ownerOf(h.File); {
		case err == nil:
			out = append(out, h)
		case !errors.Is(err, fs.ErrNotExist): // freed meanwhile
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// ownerOf is whom a file of a network's folder keeps its address for: an interface,
// of the time when files named the container alone a container, or nobody where the
// file says nothing.
func ownerOf(file string) (core.Key, error) {
	data, err := hostfile.Read(file, maxAddressFile)
	if err != nil {
		return core.Key{}, err
	}
	id, ifName, _ := strings.Cut(string(bytes.TrimSpace(bytes.Trim(data, "\x00"))), separator)
	return core.Key{Container: id, IfName: ifName}, nil
}
