package ovs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/lib/filelock"
)

// bridgeWait is how long a start waits for an agent that is just ending.
const bridgeWait = 2 * time.Second

// LockBridge makes sure that no other agent keeps the ports of this bridge: two
// of them, each with a journal of its own, would take each other's ports for
// strays. The lock lies beside the database's socket, so it is one for all who
// can reach that; it ends with the process. A database elsewhere has none.
func LockBridge(endpoint, bridge string) (*filelock.Lock, error) {
	socket, ok := strings.CutPrefix(endpoint, "unix:")
	if !ok {
		return nil, nil //nolint:nilnil // none is no failure
	}
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o755); err != nil { // Open vSwitch may start after us
		return nil, fmt.Errorf("lock bridge %s: %w", bridge, err)
	}
	path := filepath.Join(dir, "fairlead-"+bridge+".lock")
	lock, err := filelock.Take(path, bridgeWait)
	if errors.As(err, new(*filelock.HeldError)) {
		err = fmt.Errorf("another agent keeps it (%s); stop that one, or give this one a --bridge of its own", path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock bridge %s of %s: %w", bridge, endpoint, err)
	}
	return lock, nil
}
