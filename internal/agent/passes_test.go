package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

// TestRetriesBackOff: while only time passes, longer and longer; something that
// happened begins anew.
func TestRetriesBackOff(t *testing.T) {
	p := newPasses(&Daemon{log: slog.New(slog.DiscardHandler)}, false)
	seconds := func(again bool) int { return int(p.next(false, again) / time.Second) }
	require.Equal(t, []int{1, 2, 4, 8, 16, 16}, []int{seconds(true), seconds(true), seconds(true), seconds(true), seconds(true), seconds(true)})
	require.Equal(t, []int{1, 2}, []int{seconds(false), seconds(true)})
	require.Zero(t, p.next(true, true))
	require.Equal(t, 1, seconds(true))
}

// TestStartWithoutOVSDB: an agent of a node that has no switch does not wait for
// one before it serves.
func TestStartWithoutOVSDB(t *testing.T) {
	endpoint := "unix:" + filepath.Join(t.TempDir(), "db.sock")
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		d := &Daemon{log: log, opts: Config{Bridge: "br-int"}, ovs: ovs.New(ovs.Config{Endpoint: endpoint, Bridge: "br-int", Log: log})}
		go d.ovs.Run(t.Context())
		begun := time.Now()
		d.meetOVS(t.Context())
		require.Zero(t, time.Since(begun), "by the clock of this test, which goes on when all wait")
	})
}

// TestVoiceSaysItOnce: a database that is away is so in many words, and once.
func TestVoiceSaysItOnce(t *testing.T) {
	var log bytes.Buffer
	v := upkeep.Voice{Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, err := range []error{
		nil, fmt.Errorf("no socket: %w", core.ErrUnavailable), fmt.Errorf("nobody there: %w", core.ErrUnavailable),
		nil, nil, errors.New("a"), errors.New("a"), errors.New("b"), nil,
	} {
		v.Hear(err)
	}
	var said []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), "msg=")
		said = append(said, line)
	}
	require.Equal(t, []string{
		`"node not in order yet" err="no socket: unavailable"`, `"node in order again"`,
		`"node not in order yet" err=a`, `"node not in order yet" err=b`, `"node in order again"`,
	}, said)
}

// TestLooksDoNotGather: a port that cannot be put right for an hour, and is found so
// by each audit too, is looked at every sixteen seconds, as if nobody had found it
// twice; something nearer is not put off by that.
func TestLooksDoNotGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPortRepairs(&Daemon{})
		audit, looks := time.NewTicker(auditEvery), 0
		defer audit.Stop()
		end := time.After(time.Hour)
		p.later("c", lastRetry)
		for over := false; !over; {
			select {
			case <-audit.C:
				p.later("c", lastRetry)
			case <-p.wake:
				require.Equal(t, map[string]bool{"c": true}, p.take())
				looks++
				p.later("c", lastRetry)
			case <-end:
				over = true
			}
		}
		require.InDelta(t, time.Hour/lastRetry, looks, 1)
		p.later("c", busyPause)
		time.Sleep(busyPause)
		synctest.Wait()
		require.Equal(t, map[string]bool{"c": true}, p.take())
		time.Sleep(time.Hour) // the timer before it
	})
}

// TestReadyWithEveryGateway: a Subnet that the last pass left out, since this node might not serve it,
// has no gateway at the moment from which on it may.
func TestReadyWithEveryGateway(t *testing.T) {
	t.Parallel()
	may := func(subnets ...string) func(core.Subnet) error {
		return func(s core.Subnet) error {
			if slices.Contains(subnets, s.Name) {
				return nil
			}
			return errors.New("whether this cluster has other nodes is not known")
		}
	}
	last := &outcome{resets: 1, left: []core.Subnet{{Name: "data"}, {Name: "web"}}}
	require.NoError(t, last.still(1, may()), "what nothing is known of may not be served")
	require.NoError(t, last.still(1, may("gone")))
	require.ErrorContains(t, last.still(1, may("web")), "the gateway of Subnet web is set, which this node may serve now")
	require.ErrorIs(t, last.still(1, may("data", "web")), core.ErrUnavailable)
	require.ErrorIs(t, last.still(2, may()), errAnew)
	require.NoError(t, (&outcome{resets: 1}).still(1, nil), "nothing is asked where nothing was left out")
	require.EqualError(t, (&outcome{err: errNoPass}).still(0, nil), errNoPass.Error())
}
