package chassis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/gateway/encap"
)

// nothing is an Open vSwitch that is as it should be.
type nothing struct{}

func (nothing) IDs() (map[string]string, error) { return nil, nil }
func (nothing) SetIDs(context.Context, func(map[string]string) map[string]string) ([]string, error) {
	return nil, nil
}

// unixctl answers at a control socket of a run directory, until the test ends, and gives the
// commands that it is asked.
func unixctl(t *testing.T, dir string) <-chan string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "ovn-controller.1.ctl"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	asked := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var question struct {
				Method string `json:"method"`
			}
			if json.NewDecoder(c).Decode(&question) == nil {
				asked <- question.Method
				_ = json.NewEncoder(c).Encode(map[string]any{"id": 0, "result": "", "error": nil})
			}
			_ = c.Close()
		}
	}()
	return asked
}

// TestRecompute: ovn-controller is told to compute all flows anew again and again, and never
// where nobody asked for it.
func TestRecompute(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := unixctl(t, dir)
	var log bytes.Buffer
	run := func(every time.Duration) (stop func()) {
		k := chassis.New(chassis.Config{
			Flags: chassis.Flags{Recompute: every, RunDir: dir}, Switch: nothing{}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Choice: chassis.Choice{Tunnel: func() string { return "" }, Given: func() ([]encap.Given, error) { return nil, nil }},
			Joins:  func() (gateway, known bool) { return false, false },
		}, 1400)
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { k.Run(ctx) })
		return func() { end(); wg.Wait() }
	}
	stop := run(0)
	time.Sleep(50 * time.Millisecond)
	stop()
	require.Empty(t, asked)

	stop = run(10 * time.Millisecond)
	for range 3 {
		select {
		case command := <-asked:
			require.Equal(t, "inc-engine/recompute", command)
		case <-time.After(20 * time.Second):
			require.Fail(t, "ovn-controller was not told")
		}
	}
	stop()
	require.NotContains(t, log.String(), "not told")
}
