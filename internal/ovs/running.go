package ovs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// reacts is how long ovs-vswitchd may take to answer: a pass over a thousand
// ports that it has just found takes it less.
const reacts = 2 * time.Second

// Running is nil when ovs-vswitchd does its work; else it wraps
// core.ErrUnavailable and tells why. The database does not say that it died
// after it took the bridge: what it wrote stays. Where its control socket is
// not to be found, Running makes a change of next_cfg and waits until it is
// applied, so it is not for every ADD.
func (c *Client) Running(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reacts)
	defer cancel()
	err := AskSwitchd(ctx, c.cfg.Endpoint)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// None there, or one that a killed process left: another may be elsewhere.
	return c.Settle(ctx)
}

// AskSwitchd is nil when an ovs-vswitchd answers on a control socket beside the
// database's (ovs-vswitchd(8), --unixctl: ovs-vswitchd.PID.ctl in the run
// directory). core.ErrNotFound: there is no such socket, which proves nothing,
// since it may be elsewhere; core.ErrUnavailable: nobody answers on it within
// 2 s.
func AskSwitchd(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, reacts)
	defer cancel()
	err := fmt.Errorf("control socket of ovs-vswitchd beside %s: %w", endpoint, core.ErrNotFound)
	for _, socket := range switchdSockets(endpoint) {
		if err = ask(ctx, socket); err == nil {
			return nil
		}
		err = fmt.Errorf("ovs-vswitchd does not answer: %w: %w", core.ErrUnavailable, err)
	}
	return err
}

// switchdSockets are the control sockets of ovs-vswitchd beside the database's.
func switchdSockets(endpoint string) []string {
	path, isUnix := strings.CutPrefix(endpoint, "unix:")
	if !isUnix {
		return nil
	}
	sockets, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "ovs-vswitchd*.ctl")) // a folder that is no good pattern has none
	return sockets
}

// ask has the process say its version: its main loop answers, the one that applies
// changes. What it says is no matter.
func ask(ctx context.Context, socket string) error {
	_, err := Control(ctx, socket, "version")
	return err
}

// Control has a daemon of Open vSwitch's or OVN's carry out a command by its
// control socket (JSON-RPC 1.0, as ovs-appctl does) and gives what it says. What it
// refuses is an error.
func Control(ctx context.Context, socket, command string, args ...string) (string, error) {
	question, err := json.Marshal(map[string]any{"id": 0, "method": command, "params": append([]string{}, args...)})
	if err != nil {
		return "", err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // which ends the read
	var answer struct {
		Result string `json:"result"`
		Error  any    `json:"error"`
	}
	if _, err = conn.Write(question); err == nil {
		err = json.NewDecoder(conn).Decode(&answer)
	}
	if err == nil && answer.Error != nil {
		err = fmt.Errorf("%s: %v", command, answer.Error)
	}
	return answer.Result, cmp.Or(ctx.Err(), err)
}
