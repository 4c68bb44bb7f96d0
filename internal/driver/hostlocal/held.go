package hostlocal

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/hostfile"
)

// Held is an address that a file of a network's folder keeps, and for whom: an
// interface, of the time when files named the container alone a container, or
// nobody where the file says nothing.
type Held struct {
	Address netip.Addr
	File    string
	Owner   core.Key
}

// List reads the folder of a network without its lock, and changes nothing in it:
// what it tells may be over. Of a folder that is not there it is empty; an error
// comes with what could be read.
func List(dataDir, network string) ([]Held, error) {
	dir := folder(&allocator.IPAMConfig{DataDir: dataDir, Name: network})
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	var out []Held
	for _, e := range entries {
		addr, notIP := netip.ParseAddr(e.Name())
		if notIP != nil || !e.Type().IsRegular() {
			continue
		}
		h := Held{Address: addr, File: filepath.Join(dir, e.Name())}
		switch h.Owner, err = OwnerOf(h.File); {
		case err == nil:
			out = append(out, h)
		case !errors.Is(err, fs.ErrNotExist): // freed meanwhile
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// OwnerOf is whom a file of a network's folder keeps its address for.
func OwnerOf(file string) (core.Key, error) {
	data, err := hostfile.Read(file, maxAddressFile)
	if err != nil {
		return core.Key{}, err
	}
	id, ifName, _ := strings.Cut(string(bytes.TrimSpace(bytes.Trim(data, "\x00"))), separator)
	return core.Key{Container: id, IfName: ifName}, nil
}
