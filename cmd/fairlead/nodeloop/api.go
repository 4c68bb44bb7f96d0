package nodeloop

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cluster"
	"github.com/fairlead/fairlead/internal/cluster/login"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/report"
	"github.com/fairlead/fairlead/internal/node/source/api"
)

// apiServer is the node's part in a cluster.
type apiServer struct {
	reports *report.Reporter
	pods    *api.Source
}

// apiServer is nil without --kubeconfig. With it, the node will tell of changes.
func (o *Options) apiServer(conf *node.Config, engine runtimeapi.RuntimeServiceClient) (*apiServer, error) {
	if o.Kubeconfig == "" {
		return nil, nil
	}
	to, err := login.New(login.Config{Kubeconfig: o.Kubeconfig, Node: o.Name, UserAgent: "fairlead-node/" + o.Version, Log: conf.Log}).Current()
	if err != nil {
		return nil, err
	}
	cluster.LogTo(conf.Log)
	out := &apiServer{}
	if out.reports, err = report.New(report.Config{
		Server: to.REST, Node: o.Name, Addresses: o.addresses(), Disk: o.RootDir, Version: o.Version, Runtime: engine, Log: conf.Log,
	}); err != nil {
		return nil, err
	}
	conf.Changed = out.reports.Changed
	out.pods, err = api.New(api.Config{Server: to.REST, Node: o.Name, After: out.reports.Registered(), Log: conf.Log})
	return out, err
}

func (a *apiServer) parts(ctx context.Context, m *mux.Mux, n *node.Node) []func(context.Context) error {
	lists, to := make(chan []*v1.Pod), m.Channel(ctx, mux.API)
	return []func(context.Context) error{
		func(ctx context.Context) error { return a.reports.Run(ctx, n) },
		func(ctx context.Context) error { return a.pods.Run(ctx, lists) },
		func(ctx context.Context) error { return pass(ctx, lists, to, a.reports.Hear) },
	}
}

// pass hands lists on through a filter until ctx ends.
func pass(ctx context.Context, from <-chan []*v1.Pod, to chan<- []*v1.Pod, through func([]*v1.Pod) []*v1.Pod) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case list := <-from:
			select {
			case <-ctx.Done():
				return nil
			case to <- through(list):
			}
		}
	}
}

// addresses of this node, as the API server is report.
func (o *Options) addresses() []string {
	if o.IP == "" {
		return nil
	}
	return []string{o.IP}
}
