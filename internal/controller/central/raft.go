package central

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/lib/metric"
	"github.com/fairlead/fairlead/internal/ovn/raft"
)

// dialLimit bounds the question whether another member answers.
const dialLimit = 3 * time.Second

// prepare makes a database's file where there is none: by joining those who are
// there or, where this member is the first of all and no cluster has begun yet, by
// beginning one. A file of a cluster in whose place another has begun is none.
func (m *member) prepare(ctx context.Context, d database) error {
	file := m.file(d)
	if _, err := os.Stat(file); err == nil && m.former(ctx, d, m.cluster(ctx, d)) {
		if err := m.aside(ctx, d); err != nil {
			return err
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	me := m.me(d)
	others := m.answering(ctx, d)
	if len(others) == 0 {
		if m.Address != m.first {
			return fmt.Errorf("%s: no other member answers: %s begins its cluster", d.name, m.first)
		}
		return m.found(ctx, d)
	}
	draft := file + ".new" // a file that is half made is none
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	argv := []string{"ovsdb-tool"}
	if noted, err := m.self.Begun(ctx, d.name); err == nil && noted.Cluster != "" {
		argv = append(argv, "--cid="+noted.Cluster) // and none of a former cluster that still runs
	}
	if _, err := m.call(ctx, append(append(argv, "join-cluster", draft, d.name, me), others...)...); err != nil {
		return err
	}
	m.Log.Info("database made", "database", d.name, "joins", others)
	return os.Rename(draft, file)
}

// me is this member in a database's cluster.
func (m *member) me(d database) string { return "ssl:" + at(m.Address, d.raft) }

// found begins the cluster of a database, unless it has begun before. Its file is
// whole before that is noted, and in its place after: killed between the two, this
// member goes on with the file.
func (m *member) found(ctx context.Context, d database) error {
	id, err := m.call(ctx, "ovsdb-tool", "db-cid", m.draft(d))
	if err != nil { // none, or half of one
		if id, err = m.begin(ctx, d, d.schema); err != nil {
			return err
		}
	}
	if err := m.self.Begin(ctx, d.name, id, false); err != nil {
		return err
	}
	return m.begun(d, id)
}

// draft is the file of a cluster that begins here, until it is noted.
func (m *member) draft(d database) string { return m.file(d) + ".first" }

// begin makes the draft of a database with some contents, a schema or a database's,
// in the place of one before, and gives the id of its cluster.
func (m *member) begin(ctx context.Context, d database, contents string) (id string, err error) {
	if err := os.Remove(m.draft(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := m.call(ctx, "ovsdb-tool", "create-cluster", m.draft(d), contents, m.me(d)); err != nil {
		return "", err
	}
	return m.call(ctx, "ovsdb-tool", "db-cid", m.draft(d))
}

// begun puts the draft into its place.
func (m *member) begun(d database, id string) error {
	m.Log.Info("cluster of a database begun", "database", d.name, "id", id)
	return os.Rename(m.draft(d), m.file(d))
}

// answering are the other members of a database's cluster who answer.
func (m *member) answering(ctx context.Context, d database) (out []string) {
	for _, a := range m.all {
		if a == m.Address {
			continue
		}
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialLimit}, Config: m.self.TLS()}
		conn, err := dialer.DialContext(ctx, "tcp", at(a, d.raft))
		if err != nil {
			continue
		}
		_ = conn.Close()
		out = append(out, "ssl:"+at(a, d.raft))
	}
	return out
}

// connection makes the southbound database say where relays listen for chassis, and
// by which role.
func (m *member) connection(ctx context.Context) error {
	port := fmt.Sprintf("pssl:%d:0.0.0.0", fairlead.PortChassis)
	if a, err := netip.ParseAddr(m.Address); err == nil && a.Is6() {
		port = fmt.Sprintf("pssl:%d:[::]", fairlead.PortChassis)
	}
	now, err := m.call(ctx, m.sbctl("get-connection")...)
	if err != nil {
		return err
	}
	if strings.Contains(now, `role="ovn-controller" `+port) {
		return nil
	}
	_, err = m.call(ctx, m.sbctl("set-connection", "role=ovn-controller", port)...)
	return err
}

// view is how this member sees the cluster of a database.
func (m *member) view(ctx context.Context, d database) (raft.View, error) {
	out, err := m.appctl(ctx, d, "cluster/status", d.name)
	if err != nil {
		return raft.View{}, fmt.Errorf("%s does not answer: %w", d.name, err)
	}
	return raft.Read(out), nil
}

// appctl has a database's server carry out a command.
func (m *member) appctl(ctx context.Context, d database, command ...string) (string, error) {
	return m.call(ctx, append([]string{"ovs-appctl", "--timeout=5", "-t", m.ctl(d.short)}, command...)...)
}

// state is nil when this member is one of a cluster that has a leader.
func (m *member) state(ctx context.Context, d database) (leads bool, err error) {
	v, err := m.view(ctx, d)
	switch {
	case err != nil:
		return false, err
	case !v.Joined():
		return false, fmt.Errorf("%s: this member has not joined its cluster", d.name)
	case !v.Led():
		return false, fmt.Errorf("%s: its cluster has no leader: more than half of its members must run", d.name)
	}
	return v.Leads(), nil
}

// ready is nil when all of this member serves.
func (m *member) ready(ctx context.Context) error {
	_, nb := m.state(ctx, north)
	_, sb := m.state(ctx, south)
	err := errors.Join(m.self.Ready(), nb, sb)
	if err == nil && !m.converted.Load() {
		err = errors.New("a database has an older schema than this member's OVN: the log says why it is not converted")
	}
	return err
}

// metrics are read at each scrape.
func (m *member) metrics() http.Handler {
	r := metric.New(m.Version, m.Revision)
	for _, d := range []database{north, south} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fairlead_central_raft_state", ConstLabels: prometheus.Labels{"database": d.name},
			Help: "This member in its cluster: 2 it leads, 1 it follows a leader, 0 neither.",
		}, func() float64 {
			ctx, cancel := context.WithTimeout(context.Background(), dialLimit) //nolint:forbidigo // the library gives none
			defer cancel()
			leads, err := m.state(ctx, d)
			switch {
			case err != nil:
				return 0
			case leads:
				return 2
			}
			return 1
		}))
	}
	for _, c := range []*child{m.nb, m.sb, m.relay, m.northd} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "fairlead_central_restarts_total", ConstLabels: prometheus.Labels{"part": c.name},
			Help: "Starts of a part after its end.",
		}, func() float64 { return float64(c.restarts.Load()) }))
	}
	r.Gauge("fairlead_certificate_expiry_timestamp_seconds", "When the certificate is over; 0: there is none.", m.self.Expiry)
	return r.Handler()
}
