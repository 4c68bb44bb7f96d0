// Package checkpoint keeps a record of each sandbox on disk: what must be known
// of it when the engine has lost it or this program was restarted. A record is
// there whole or not at all, and one that is damaged is set aside, so that it
// never blocks the end of its pod. It knows neither Docker nor networks.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// Phase says how far a sandbox's network is.
type Phase string

// Phases of a network.
const (
	Pending Phase = "pending" // begun: whatever was done must be undone
	Ready   Phase = "ready"
	Host    Phase = "host"    // the node's own, and the sandbox is ready: nothing to undo
	Leaving Phase = "leaving" // what was done is being undone
	Down    Phase = "down"    // undone
)

// Record is what is known of a sandbox.
type Record struct {
	Pod     netplugin.Pod           `json:"pod"`
	Ports   []netplugin.PortMapping `json:"ports,omitempty"`
	Attempt uint32                  `json:"attempt"`
	Phase   Phase                   `json:"phase"`
}

// version of the form on disk.
const version = "fairlead/v1"

// file is the form on disk: Checksum is over Data as it stands.
type file struct {
	Version  string          `json:"version"`
	Data     json.RawMessage `json:"data"`
	Checksum uint32          `json:"checksum"` // CRC-32C
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCorrupt marks a record that cannot be read; it was set aside.
var ErrCorrupt = errors.New("the record is damaged")

// Store is a folder of records, all of them in memory too.
type Store = recordfile.Store[Record]

// Open reads the folder, making it first. Damaged records are renamed to
// <id>.corrupt and told in the error, which wraps ErrCorrupt: the store is usable
// nevertheless.
func Open(dir string) (*Store, error) {
	return recordfile.Open(dir, recordfile.Form[Record]{
		What: "checkpoint", ID: func(r Record) string { return r.Pod.Sandbox }, Encode: encode, Decode: decode,
	})
}

func encode(r Record) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{version, data, crc32.Checksum(data, castagnoli)})
}

func decode(b []byte) (r Record, err error) {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return r, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if f.Version != version || crc32.Checksum(f.Data, castagnoli) != f.Checksum {
		return r, fmt.Errorf("%w: version %q, checksum %08x", ErrCorrupt, f.Version, f.Checksum)
	}
	if err := json.Unmarshal(f.Data, &r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return r, nil
}
