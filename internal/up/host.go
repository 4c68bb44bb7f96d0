package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/ops/client"
)

// pluginType is the type by which our configuration calls the plugin.
const pluginType = "fairlead"

// endStrayShims ends what containerd has forgotten of the pods that a former
// process had it begin when it was killed.
func endStrayShims(endpoint string) (int, error) {
	return EndStrayShims(strings.TrimPrefix(endpoint, "unix://"))
}

func tellStrayShims(endpoint string, log *slog.Logger) {
	if ended, err := endStrayShims(endpoint); ended > 0 || err != nil {
		log.Warn("shims that containerd had forgotten were ended", "count", ended, "err", err)
	}
}

// host is the runtime, which is another process's: it has no pods but ours, which
// the node loop would end, and gives pods our network. To end pods it need not.
type host struct {
	*Config
	endpoint string
	record   Record
	log      *slog.Logger

	ours, tried atomic.Bool
}

func (h *host) part() Part { return Part{Name: "runtime", Run: h.run, Ready: h.ready} }

func (h *host) run(ctx context.Context) error {
	if !h.ending { // else the end looks once no pod is left
		tellStrayShims(h.endpoint, h.log)
	}
	var err error
	if h.ending { // a start removes it once the runtime can: tryPod
		err = runtimes.EndProofs(ctx, h.endpoint)
	}
	if err == nil {
		err = h.foreign(ctx, h.endpoint)
	}
	if err == nil && !h.ending {
		err = h.chosen(ctx, h.endpoint)
	}
	if err != nil {
		return err
	}
	h.ours.Store(true)
	if !h.ending {
		err = h.try(ctx)
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

func (h *host) ready(ctx context.Context) error {
	if !h.ours.Load() {
		return errors.New("its pods and its network are not known yet")
	}
	if h.ending {
		return nil
	}
	if err := gives(ctx, h.endpoint); err != nil {
		return err
	}
	if !h.tried.Load() {
		return errors.New("it has not attached a first pod yet")
	}
	return nil
}

// try is for a folder of which no pod was begun.
func (h *host) try(ctx context.Context) error {
	if h.record.Untried {
		if err := h.tryPod(ctx, h.endpoint, h.log); err != nil || ctx.Err() != nil {
			return err
		}
		h.record.Untried = false
		if err := h.record.Save(h.StateDir); err != nil {
			return err
		}
	}
	h.tried.Store(true)
	return nil
}

// tryPod has the runtime attach a pod and detach it, before the first of the
// folder: that it has loaded our configuration does not tell that it takes our
// plugin's answers. Without a free address that cannot be found out.
func (o *Config) tryPod(ctx context.Context, endpoint string, log *slog.Logger) error {
	for gives(ctx, endpoint) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
	full, err := o.fullSubnet(ctx)
	if err != nil {
		return err
	}
	if full != "" {
		log.Warn("no test pod ran, whether pods get a network is not proven: the Subnet has no free address", "subnet", full)
		return nil
	}
	err = runtimes.Prove(ctx, endpoint)
	if errors.Is(err, runtimes.ErrNoPods) {
		log.Warn("no test pod ran: whether pods get a network is not proven", "err", err)
		return nil
	}
	if err != nil {
		return hint.On(fmt.Errorf("a pod got no network: %w", err), "`fairlead doctor` looks at the machine; then start again")
	}
	return nil
}

// fullSubnet names the default one if it has no address left.
func (o *Config) fullSubnet(ctx context.Context) (string, error) {
	list, err := client.New(o.Socket).Subnets(ctx)
	for _, s := range list.Items {
		if s.Default && slices.ContainsFunc(s.Usage, func(u agent.Usage) bool { return u.Free == 0 }) {
			return s.Name, nil
		}
	}
	return "", err
}

// gives wants the runtime to have read the configuration that calls the agent. A
// pod that is begun before fails, or gets the network of somebody else.
func gives(ctx context.Context, endpoint string) error {
	live, err := runtimes.Query(ctx, endpoint)
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
func (o *Config) chosen(ctx context.Context, endpoint string) error {
	tick := time.NewTicker(twice)
	defer tick.Stop()
	var before error
	for {
		if callsUs(o.ConfDir) {
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
func (o *Config) outdone(ctx context.Context, endpoint string) error {
	live, err := runtimes.Query(ctx, endpoint)
	if err != nil {
		return err
	}
	network := live.Network
	if network == nil {
		n, err := runtimes.Usual().Network(live.Dialect)
		if err != nil {
			return err
		}
		network = &n
	}
	s := network.Settings
	s.Dir, s.CNI = o.ConfDir, live.CNI
	c, err := explain.Explain(ctx, live.Dialect, s, explain.NewPlugins(o.BinDirs, o.Parts.RunPlugin))
	if err != nil {
		return err
	}
	won := c.Winner()
	switch stops := c.With(explain.Stops); {
	case won != nil && won.Runs(pluginType):
		return nil
	case won != nil:
		return hint.On(fmt.Errorf("pods would get the network %q of %s, not Fairlead's: %s", won.Name, won.File, c.Why),
			"rename or remove "+filepath.Join(s.Dir, won.File))
	case len(stops) > 0:
		return hint.On(fmt.Errorf("pods would get no network: %s", c.Why), "repair or remove "+filepath.Join(s.Dir, stops[0].Name))
	}
	return hint.On(fmt.Errorf("pods would get no network: %s", c.Why), "`fairlead conf explain` says what becomes of each file")
}

// foreign wants the runtime to have no pods but ours.
func (o *Config) foreign(ctx context.Context, endpoint string) error {
	conn, err := podruntime.Dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = Foreign(ctx, cri.NewRuntimeServiceClient(conn), o.NodeName)
	if errors.Is(err, ErrForeign) {
		return hint.On(err, "a node has one program that runs its pods: end the other one's (kubelet's, crictl's), or use another runtime")
	}
	return err
}
