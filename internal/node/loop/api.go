package loop

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/url"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/object"
	objectapi "github.com/fairlead/fairlead/internal/node/object/api"
	"github.com/fairlead/fairlead/internal/node/report"
	"github.com/fairlead/fairlead/internal/node/source/api"
	"github.com/fairlead/fairlead/internal/node/volume"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// apiServer is the node's part in a cluster.
type apiServer struct {
	reports *report.Reporter
	pods    *api.Source
}

// server says how to reach the API server; nil without --kubeconfig. The node's
// address becomes the one that leads there, unless it has one.
func (o *Config) server(log *slog.Logger) (*login.Login, error) {
	if o.Kubeconfig == "" {
		return nil, nil
	}
	to, err := login.New(login.Config{Kubeconfig: o.Kubeconfig, Node: o.Name, UserAgent: "fairlead-node/" + o.Version, Log: log}).Current()
	if err != nil {
		return nil, err
	}
	login.LogTo(log)
	if o.IP == "" {
		o.IP = towards(to.REST.Host)
	}
	return &to, nil
}

// towards is the address of this machine from which a server is reached; ""
// where there is none that others could use. Nothing is sent.
func towards(host string) string {
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	c, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		return ""
	}
	defer c.Close()
	at, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok || at.IP.IsLoopback() {
		return ""
	}
	return at.IP.String()
}

// apiServer is nil without a server. With one, the node will tell of changes.
func (o *Config) apiServer(conf *node.Config, engine runtimeapi.RuntimeServiceClient, to *login.Login) (*apiServer, error) {
	if to == nil {
		return nil, nil
	}
	out := &apiServer{}
	var err error
	if out.reports, err = report.New(report.Config{
		Server: to.REST, Node: o.Name, Addresses: o.addresses(), Disk: o.RootDir, Version: o.Version, Runtime: engine,
		Port: o.Kubelet.port, Log: conf.Log,
	}); err != nil {
		return nil, err
	}
	conf.Changed, conf.Tell = out.reports.Changed, out.reports.Tell
	out.pods, err = api.New(api.Config{Server: to.REST, Node: o.Name, After: out.reports.Registered(), Log: conf.Log})
	return out, err
}

// objects are those of the pods' folder, and with a server its own, as are the
// tokens of pods' service accounts.
func (o *Config) objects(to *login.Login, log *slog.Logger) (object.Store, volume.Tokens, error) {
	var files object.Store = object.None{}
	if o.Pods != "" {
		files = object.Over(o.Folder, log)
	}
	if to == nil {
		return files, nil, nil
	}
	store, err := objectapi.New(objectapi.Config{Server: to.REST, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return object.Both{First: files, Second: store}, store, nil
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
func (o *Config) addresses() []string {
	if o.IP == "" {
		return nil
	}
	return []string{o.IP}
}
