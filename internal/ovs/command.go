package ovs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// Command has the ovs-vswitchd whose control socket lies beside the database's carry
// out one of its commands (ovs-vswitchd(8)), and gives what it prints.
// core.ErrNotFound: there is no such socket.
func Command(ctx context.Context, endpoint, command string, args ...string) (out string, err error) {
	path, _ := strings.CutPrefix(endpoint, "unix:")
	sockets, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "ovs-vswitchd*.ctl")) // a folder that is no good pattern has none
	err = fmt.Errorf("control socket of ovs-vswitchd beside %s: %w", endpoint, core.ErrNotFound)
	for _, socket := range sockets { // a killed process leaves its own
		if out, err = Control(ctx, socket, command, args...); err == nil {
			return out, nil
		}
	}
	return "", err
}
