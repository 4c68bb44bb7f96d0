// Package central runs one member of OVN's central part: both databases as members
// of their clusters (raft), a relay of the southbound one for chassis, and northd,
// as its children; and ovn-ic, while the cluster is joined to others. It keeps their
// certificates. It must not know what is in the databases, but for the port that chassis
// connect to, chassis of nodes that are gone, and where ovn-ic is to connect to.
package central

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/httpserve"
	"github.com/fairlead/fairlead/internal/lib/parts"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Config is what a member is told. Its fields are the flags of
// `fairlead-controller central`.
type Config struct {
	// Kubeconfig leads to the API server; "" is the service account of the pod that
	// this runs in.
	Kubeconfig string
	// Namespace is Fairlead's.
	Namespace string
	// Address is this member's, Members are those of all, with commas between, of
	// which the first begins the clusters of databases.
	Address, Members string
	// Dir has the databases and certificates, RunDir the sockets.
	Dir, RunDir string
	// HTTP is an address for metrics and probes, "" for none.
	HTTP string

	Version, Revision string
	Log               *slog.Logger
}

// again is the pause before something that failed is tried again.
const again = time.Second

// database is one of the two, as OVN's programs know it.
type database struct {
	short, name    string // nb, OVN_Northbound
	clients, raft  int    // ports
	schema, option string
}

var (
	north = database{"nb", "OVN_Northbound", fairlead.PortNB, fairlead.PortNBRaft, "/usr/share/ovn/ovn-nb.ovsschema", "--ovnnb-db="}
	south = database{"sb", "OVN_Southbound", fairlead.PortSB, fairlead.PortSBRaft, "/usr/share/ovn/ovn-sb.ovsschema", "--ovnsb-db="}
)

// member is one member at work.
type member struct {
	Config

	all   []string // addresses of all members, in order
	first string   // address of the member that begins
	self  *kube.Identity
	nb, sb, relay,
	northd *child

	// apart tells that the cluster is joined to no other, which is not known at first.
	apart atomic.Bool

	// converted tells that no database is of an older schema than this member's OVN.
	converted atomic.Bool

	mu      sync.Mutex
	ic      *child           // nil while the cluster is joined to no other
	trusted kube.Credentials // whom the children have been told to trust since they began
}

// complete says what is wrong with the flags, and gives the members.
func (c *Config) complete() ([]string, error) {
	var all []string
	for text := range strings.SplitSeq(c.Members, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, hint.Usagef("--members: %q is no address", text)
		}
		all = append(all, a.String())
	}
	switch {
	case len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all):
		return nil, hint.Usagef("--members: an address is there twice")
	case !slices.Contains(all, c.Address):
		return nil, hint.Usagef("--address: %q is none of --members", c.Address)
	case !filepath.IsAbs(c.Dir):
		return nil, hint.Usagef("--dir is an absolute path")
	case !filepath.IsAbs(c.RunDir):
		return nil, hint.Usagef("--run-dir is an absolute path")
	}
	return all, nil
}

// Run runs a member until ctx ends. A wrong Config is a hint.UsageError.
func Run(ctx context.Context, c Config) error {
	all, err := c.complete()
	if err != nil {
		return err
	}
	for _, d := range []string{c.Dir, c.RunDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("folder of central: %w", err)
		}
	}
	m := &member{Config: c, all: slices.Sorted(slices.Values(all)), first: all[0]}
	login.LogTo(c.Log)
	to, err := login.New(login.Config{Kubeconfig: c.Kubeconfig, UserAgent: "fairlead-central/" + c.Version, Log: c.Log}).Current()
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--kubeconfig: %w", err)}
	}
	m.trusted = m.load()
	m.self, err = kube.NewIdentity(to.REST, kube.IdentityConfig{
		Namespace: c.Namespace, Name: "central-" + c.Address, Begin: m.trusted, Changed: m.renewed, Log: c.Log,
	})
	if err != nil {
		return err
	}
	m.children()
	serve, err := httpserve.Open(ctx, c.HTTP, m.pages())
	if err != nil {
		return hint.UsageError{Err: fmt.Errorf("--http: %w", err)}
	}
	return parts.Run(ctx,
		func(context.Context) error { return serve() },
		func(ctx context.Context) error { m.self.Run(ctx); return nil },
		func(ctx context.Context) error { m.run(ctx); return nil })
}

// run serves, once there are certificates, until ctx ends; anew when another cluster of
// the databases has begun.
func (m *member) run(ctx context.Context) {
	if !m.until(ctx, "certificate", func(context.Context) error { return m.self.Ready() }) {
		return
	}
	for ctx.Err() == nil && m.until(ctx, "restored databases", m.restore) {
		m.serve(ctx)
	}
}

// serve starts the children in order, and ends them in the reverse order when ctx ends
// or the databases are to be others.
func (m *member) serve(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	m.converted.Store(false)
	var beside sync.WaitGroup
	var ends []func()
	defer func() {
		end()
		beside.Wait()
		for _, end := range slices.Backward(ends) {
			end()
		}
	}()
	beside.Go(func() { m.follow(ctx); end() })
	for _, step := range []struct {
		what string
		due  func(context.Context) error
		then *child
	}{
		{"northbound database", func(ctx context.Context) error { return m.prepare(ctx, north) }, m.nb},
		{"southbound database", func(ctx context.Context) error { return m.prepare(ctx, south) }, m.sb},
		// northd of a newer OVN writes what an older schema has no columns for.
		{"schemas", m.convert, m.northd},
	} {
		if !m.until(ctx, step.what, step.due) {
			return
		}
		ends = append(ends, step.then.begin(ctx))
	}
	beside.Go(func() {
		if m.until(ctx, "port for chassis", m.connection) && m.until(ctx, "port for chassis", m.filled) {
			defer m.relay.begin(ctx)()
		}
		<-ctx.Done()
	})
	beside.Go(func() { m.forget(ctx) })
	beside.Go(func() { m.takeOut(ctx) })
	beside.Go(func() { m.interconnect(ctx) })
	<-ctx.Done()
}

// until tries something until it succeeds; false: ctx ended before.
func (m *member) until(ctx context.Context, what string, try func(context.Context) error) bool {
	said := ""
	for {
		err := try(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			m.Log.Warn("not ready yet: it is tried again", "part", what, "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(again):
		}
	}
}

// at is an address and a port in OVSDB's notation.
func at(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

func (m *member) file(d database) string   { return filepath.Join(m.Dir, d.short+".db") }
func (m *member) socket(d database) string { return "unix:" + filepath.Join(m.RunDir, d.short+".sock") }
func (m *member) ctl(name string) string   { return filepath.Join(m.RunDir, name+".ctl") }

// endpoints are those of a database's members.
func (m *member) endpoints(d database) string {
	var out []string
	for _, a := range m.all {
		out = append(out, "ssl:"+at(a, d.clients))
	}
	return strings.Join(out, ",")
}

// children says how the children are called.
func (m *member) children() {
	serve := func(d database) *child {
		host := m.Address
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return m.child("ovsdb-"+d.short, append([]string{"ovsdb-server", m.file(d),
			"--remote=p" + m.socket(d), fmt.Sprintf("--remote=pssl:%d:%s", d.clients, host), "--unixctl=" + m.ctl(d.short)}, m.keys(fileCentral)...))
	}
	m.nb, m.sb = serve(north), serve(south)
	m.relay = m.child("relay", append([]string{"ovsdb-server", "relay:" + south.name + ":" + m.socket(south),
		"--remote=db:" + south.name + ",SB_Global,connections", "--unixctl=" + m.ctl("relay")}, m.keys(fileChassis)...))
	m.northd = m.child("northd", append([]string{"ovn-northd", north.option + m.endpoints(north), south.option + m.endpoints(south),
		"--unixctl=" + m.ctl("northd")}, m.keys(fileCentral)...))
}

func (m *member) child(name string, argv []string) *child {
	return &child{
		name: name, argv: append(argv, "--verbose=console:warn", "--verbose=syslog:off"),
		env: []string{"OVN_RUNDIR=" + m.RunDir, "OVS_RUNDIR=" + m.RunDir}, log: m.Log,
	}
}

// pages are what is served over HTTP.
func (m *member) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.metrics())
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { httpserve.Probe(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { httpserve.Probe(w, m.ready(r.Context())) })
	return mux
}
