package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cluster"
	"github.com/fairlead/fairlead/internal/cluster/login"
	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/node/mux"
	told "github.com/fairlead/fairlead/internal/node/report" // main has a report of its own
	"github.com/fairlead/fairlead/internal/node/source/api"
)

// apiServer is the node's part in a cluster.
type apiServer struct {
	reports *told.Reporter
	pods    *api.Source
}

// apiServer is nil without --kubeconfig. With it, the node will tell of changes.
func (o *nodeOptions) apiServer(conf *node.Config, engine runtimeapi.RuntimeServiceClient) (*apiServer, error) {
	if o.kubeconfig == "" {
		return nil, nil
	}
	to, err := login.New(login.Config{Kubeconfig: o.kubeconfig, Node: o.name, UserAgent: "fairlead-node/" + version, Log: conf.Log}).Current()
	if err != nil {
		return nil, err
	}
	cluster.LogTo(conf.Log)
	out := &apiServer{}
	if out.reports, err = told.New(told.Config{
		Server: to.REST, Node: o.name, Addresses: o.addresses(), Disk: o.rootDir, Version: version, Runtime: engine, Log: conf.Log,
	}); err != nil {
		return nil, err
	}
	conf.Changed = out.reports.Changed
	out.pods, err = api.New(api.Config{Server: to.REST, Node: o.name, After: out.reports.Registered(), Log: conf.Log})
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

// addresses of this node, as the API server is told.
func (o *nodeOptions) addresses() []string {
	if o.ip == "" {
		return nil
	}
	return []string{o.ip}
}
