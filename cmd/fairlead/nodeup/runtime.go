package nodeup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/confexplain"
	"github.com/fairlead/fairlead/internal/hostruntime"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/up"
)

// pluginType is the type by which our configuration calls the plugin.
const pluginType = "fairlead"

// endStrayShims ends what containerd has forgotten of the pods that a former
// process had it begin when it was killed.
func endStrayShims(endpoint string) (int, error) {
	return up.EndStrayShims(strings.TrimPrefix(endpoint, "unix://"))
}

func tellStrayShims(endpoint string, log *slog.Logger) {
	if ended, err := endStrayShims(endpoint); ended > 0 || err != nil {
		log.Warn("shims that containerd had forgotten were ended", "count", ended, "err", err)
	}
}

// runtimePart is what is another process's: it has no pods but ours, which the
// node loop would end, and gives pods our network. To end pods it need not.
func (o *options) runtimePart(endpoint string, log *slog.Logger) up.Part {
	var ours atomic.Bool
	return up.Part{
		Name: "runtime",
		Run: func(ctx context.Context) error {
			if !o.ending { // else the end looks once no pod is left
				tellStrayShims(endpoint, log)
			}
			err := o.foreign(ctx, endpoint)
			if err == nil && !o.ending {
				err = o.chosen(ctx, endpoint)
			}
			if err != nil {
				return err
			}
			ours.Store(true)
			<-ctx.Done()
			return nil
		},
		Ready: func(ctx context.Context) error {
			if !ours.Load() {
				return errors.New("its pods and its network are not known yet")
			}
			if o.ending {
				return nil
			}
			return gives(ctx, endpoint)
		},
	}
}

// gives wants the runtime to have read the configuration that calls the agent. A
// pod that is begun before fails, or gets the network of somebody else.
func gives(ctx context.Context, endpoint string) error {
	live, err := hostruntime.Ask(ctx, endpoint)
	if err != nil {
		return err
	}
	if live.Fault != nil {
		return live.Fault
	}
	return live.Why(pluginType)
}

// twice is the pause between two looks at a folder in which somebody may be
// writing.
const twice = 500 * time.Millisecond

// chosen waits until our configuration is in the runtime's folder, and refuses
// where another one wins: no waiting would give pods our network.
func (o *options) chosen(ctx context.Context, endpoint string) error {
	tick := time.NewTicker(twice)
	defer tick.Stop()
	var before error
	for {
		if callsUs(o.confDir) {
			err := o.outdone(ctx, endpoint)
			if err == nil || before != nil && err.Error() == before.Error() {
				return err
			}
			before = err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// outdone says which configuration wins instead of ours, by the runtime's rules;
// nil when ours does.
func (o *options) outdone(ctx context.Context, endpoint string) error {
	live, err := hostruntime.Ask(ctx, endpoint)
	if err != nil {
		return err
	}
	network := live.Network
	if network == nil {
		n, err := hostruntime.Usual().Network(live.Dialect)
		if err != nil {
			return err
		}
		network = &n
	}
	s := network.Settings
	s.Dir, s.CNI = o.confDir, live.CNI
	c, err := confexplain.Explain(ctx, live.Dialect, s, confexplain.NewPlugins(o.binDirs, o.parts.Ask))
	if err != nil {
		return err
	}
	won := c.Winner()
	switch stops := c.With(confexplain.Stops); {
	case won != nil && won.Runs(pluginType):
		return nil
	case won != nil:
		return usage.Hint(fmt.Errorf("pods would get the network %q of %s, not Fairlead's: %s", won.Name, won.File, c.Why),
			"rename or remove "+filepath.Join(s.Dir, won.File))
	case len(stops) > 0:
		return usage.Hint(fmt.Errorf("pods would get no network: %s", c.Why), "repair or remove "+filepath.Join(s.Dir, stops[0].Name))
	}
	return usage.Hint(fmt.Errorf("pods would get no network: %s", c.Why), "`fairlead conf explain` says what becomes of each file")
}

// foreign wants the runtime to have no pods but ours.
func (o *options) foreign(ctx context.Context, endpoint string) error {
	conn, err := podruntime.Dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = up.Foreign(ctx, cri.NewRuntimeServiceClient(conn), o.nodeName)
	if errors.Is(err, up.ErrForeign) {
		return usage.Hint(err, "a node has one program that runs its pods: end the other one's (kubelet's, crictl's), or use another runtime")
	}
	return err
}
