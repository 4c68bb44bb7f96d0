package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bridgeWait is how long a start waits for an agent that is just ending.
const bridgeWait = 2 * time.Second

// lockBridge makes sure that no other agent keeps the ports of this bridge: two
// of them, each with a journal of its own, would take each other's ports for
// strays. The lock lies beside the database's socket, so it is one for all who
// can reach that; it ends with the process. A database elsewhere has none.
func lockBridge(endpoint, bridge string) (*os.File, error) {
	socket, ok := strings.CutPrefix(endpoint, "unix:")
	if !ok {
		return nil, nil
	}
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(dir, 0o755); err != nil { // Open vSwitch may start after us
		return nil, fmt.Errorf("lock bridge %s: %w", bridge, err)
	}
	path := filepath.Join(dir, "fairlead-"+bridge+".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock bridge %s: %w", bridge, err)
	}
	for end := time.Now().Add(bridgeWait); ; time.Sleep(20 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another agent keeps it (%s); stop that one, or give this one a --bridge of its own", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock bridge %s of %s: %w", bridge, endpoint, err)
	}
	return f, nil
}
