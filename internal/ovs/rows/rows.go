// Package rows reads rows of OVSDB databases, Open vSwitch's and OVN's, as they are
// when it is asked: by plain selects, which change and watch nothing. It must not
// know what the rows mean.
package rows

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Names of databases.
const (
	Northbound = "OVN_Northbound"
	Southbound = "OVN_Southbound"
	Switch     = "Open_vSwitch"
	ICNorth    = "OVN_IC_Northbound"
	ICSouth    = "OVN_IC_Southbound"
	Server     = "_Server" // of each ovsdb-server, about its databases (ovsdb-server(5))
)

// roots are a table of each database: libovsdb wants to know one.
var roots = map[string]string{Northbound: "NB_Global", Southbound: "SB_Global", Switch: "Open_vSwitch", Server: "Database",
	ICNorth: "IC_NB_Global", ICSouth: "IC_SB_Global"}

// root is the least that libovsdb wants to know of a table.
type root struct {
	UUID string `ovsdb:"_uuid"`
}

// TLS are the files by which a server is asked at ssl:ADDRESS:PORT; PEM each.
type TLS struct{ Key, Certificate, CA string }

// FilesIn are those of a folder, as an agent keeps them for its chassis; nothing
// where one is missing.
func FilesIn(dir string) TLS {
	t := TLS{Key: filepath.Join(dir, "key.pem"), Certificate: filepath.Join(dir, "cert.pem"), CA: filepath.Join(dir, "ca.pem")}
	for _, f := range []string{t.Key, t.Certificate, t.CA} {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			return TLS{}
		}
	}
	return t
}

// config is nil where nothing is to be shown.
func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("CA's certificate: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("CA's certificate: %s has none", t.CA)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
		// Who signed the server's certificate counts, not its name, as for Open
		// vSwitch's own programs.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			chain := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				chain.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: trusted, Intermediates: chain})
			return err
		},
	}, nil
}

// Place is where a database is served.
type Place struct {
	Endpoint string // unix:PATH, tcp:ADDRESS:PORT or ssl:ADDRESS:PORT; of a cluster all members, with commas between
	TLS      TLS
}

// Members are its endpoints.
func (p Place) Members() []string {
	if p.Endpoint == "" {
		return nil
	}
	return strings.Split(p.Endpoint, ",")
}

// DB is a connection to one server.
type DB struct{ c client.Client }

// Open connects to a database: to any member of a cluster, to the one that leads
// with leader.
func Open(ctx context.Context, database string, p Place, leader bool) (*DB, error) {
	like, err := model.NewClientDBModel(database, map[string]model.Model{roots[database]: &root{}})
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", database, err)
	}
	quiet := logr.Discard()
	opts := []client.Option{client.WithLogger(&quiet), client.WithLeaderOnly(leader)}
	for _, m := range p.Members() {
		opts = append(opts, client.WithEndpoint(m))
	}
	if strings.Contains(p.Endpoint, "ssl:") {
		cfg, err := p.TLS.config()
		if err != nil {
			return nil, err
		}
		if cfg == nil {
			return nil, errors.New("it is served by TLS, and neither key nor certificate is given")
		}
		opts = append(opts, client.WithTLSConfig(cfg))
	}
	c, err := client.NewOVSDBClient(like, opts...)
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", p.Endpoint, err)
	}
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	return &DB{c}, nil
}

// Close ends the connection.
func (d *DB) Close() { d.c.Close() }

// Select gives columns of those rows of a table that fit; all without a condition.
func (d *DB) Select(ctx context.Context, table string, columns []string, where ...ovsdb.Condition) ([]ovsdb.Row, error) {
	if where == nil {
		where = []ovsdb.Condition{}
	}
	res, err := d.transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: columns, Where: where})
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", table, err)
	}
	return res[0].Rows, nil
}

// Change carries out operations as one transaction.
func (d *DB) Change(ctx context.Context, ops ...ovsdb.Operation) error {
	_, err := d.transact(ctx, ops...)
	return err
}

func (d *DB) transact(ctx context.Context, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	res, err := d.c.Transact(ctx, ops...)
	if err != nil {
		return nil, err
	}
	for _, r := range res {
		if r.Error != "" {
			return nil, errors.New(r.Error + ": " + r.Details)
		}
	}
	if len(res) < len(ops) {
		return nil, errors.New("the server's answer is short")
	}
	return res, nil
}

// Is fits the rows whose column has a value.
func Is(column string, value any) ovsdb.Condition {
	return ovsdb.NewCondition(column, ovsdb.ConditionEqual, value)
}

// Texts are the members of a set; a lone value is a set of one (RFC 7047, 5.1).
func Texts(v any) (out []string) {
	if set, ok := v.(ovsdb.OvsSet); ok {
		for _, m := range set.GoSet {
			out = append(out, Text(m))
		}
		return out
	}
	if s := Text(v); s != "" {
		return []string{s}
	}
	return nil
}

// Text is a scalar, a UUID, or the one member of an optional column.
func Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case ovsdb.UUID:
		return v.GoUUID
	case ovsdb.OvsSet:
		if len(v.GoSet) == 1 {
			return Text(v.GoSet[0])
		}
	}
	return ""
}

// Number is an integer column; 0 for an optional one that is empty.
func Number(v any) int {
	switch v := v.(type) {
	case float64:
		return int(v)
	case int:
		return v
	case ovsdb.OvsSet:
		if len(v.GoSet) == 1 {
			return Number(v.GoSet[0])
		}
	}
	return 0
}

// Yes is a boolean column; false for an optional one that is empty.
func Yes(v any) bool {
	if set, ok := v.(ovsdb.OvsSet); ok && len(set.GoSet) == 1 {
		v = set.GoSet[0]
	}
	b, _ := v.(bool)
	return b
}

// Map is a column of texts by text.
func Map(v any) map[string]string {
	out := map[string]string{}
	if m, ok := v.(ovsdb.OvsMap); ok {
		for k, v := range m.GoMap {
			out[Text(k)] = Text(v)
		}
	}
	return out
}
