package ovs

import (
	"log/slog"
	"time"
)

// Config says which database and which bridge a Client works on.
type Config struct {
	Endpoint string // unix:/run/openvswitch/db.sock
	Bridge   string // br-int
	// Datapath is the bridge's datapath_type: "system", "netdev", or "" to
	// leave it as it is.
	Datapath string
	Log      *slog.Logger
	// OnReset is called, never twice at once, after each (re)connect when the
	// cache is in sync, when the bridge vanished, and when OVS made an
	// internal port anew (its addresses are lost then): the caller puts back
	// what should be there.
	OnReset func()
	// Probe is how often a silent connection is tested and how long an answer
	// may take; 0 = 5 s.
	Probe time.Duration
}
