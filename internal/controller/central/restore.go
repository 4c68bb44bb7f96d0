package central

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/kube"
)

// Pauses between two looks for databases that somebody restores here, and for ones that
// another member has begun.
const (
	restoreLook = time.Second
	formerLook  = 10 * time.Second
)

// looksAstray are the looks in a row that must find a cluster noted that nobody serves:
// who begins one serves it a moment after it is noted.
const looksAstray = 3

// keepsAnew is how long a cluster that was begun anew stays noted while nobody serves it: the member
// on which an operator restored databases may be away for a while, and its note is all that has
// others take these.
const keepsAnew = time.Hour

// restore begins the clusters of both databases anew with what lies in the folder for
// it. What was there is kept aside, when both are made and noted: what fails before that,
// however often, leaves the databases as they are. Killed meanwhile it begins again.
func (m *member) restore(ctx context.Context) error {
	from := filepath.Join(m.Dir, fairlead.RestoreDir)
	done := from + "-done"
	if err := os.RemoveAll(done); err != nil {
		return err
	}
	if _, err := os.Stat(from); err != nil {
		return ignoreAbsent(err)
	}
	if err := m.beginAnew(ctx, from); err != nil {
		return err
	}
	if err := os.Rename(from, done); err != nil { // in one step: half of it is refused
		return err
	}
	return os.RemoveAll(done)
}

// beginAnew puts both databases into their places, each with what a folder has for it.
func (m *member) beginAnew(ctx context.Context, from string) error {
	both, contents, ids := []database{north, south}, map[database]string{}, map[database]string{}
	for _, d := range both {
		file, err := contentsOf(from, d)
		if err != nil {
			return err
		}
		contents[d] = file
	}
	for _, d := range both {
		id, err := m.begin(ctx, d, contents[d])
		if err != nil {
			return err
		}
		ids[d] = id
	}
	for _, d := range both {
		if err := m.self.Begin(ctx, d.name, ids[d], true); err != nil {
			return err
		}
	}
	for _, d := range both {
		if err := m.aside(ctx, d); err != nil {
			return err
		}
		if err := m.begun(d, ids[d]); err != nil {
			return err
		}
	}
	return nil
}

// contentsOf is the file with which a database begins: the one that lies in a folder for
// it, or the schema where that is empty. A folder that lacks it is about to be removed by
// somebody: it begins nothing.
func contentsOf(from string, d database) (string, error) {
	file := filepath.Join(from, d.short+".db")
	is, err := os.Stat(file)
	switch {
	case err != nil:
		return "", fmt.Errorf("half a folder of databases begins nothing: complete it or remove it: %w", err)
	case is.Size() == 0:
		return d.schema, nil
	}
	return file, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// aside keeps a database's file that is one no more under the id of its cluster.
func (m *member) aside(ctx context.Context, d database) error {
	if _, err := os.Stat(m.file(d)); err != nil {
		return ignoreAbsent(err)
	}
	to := m.file(d) + "." + cmp.Or(m.cluster(ctx, d), "unjoined")
	m.Log.Warn("database put aside: another cluster of it begins or has begun", "database", d.name, "file", to)
	return os.Rename(m.file(d), to)
}

// cluster is the id of the cluster that a database's file is of, "" for none that it has
// joined.
func (m *member) cluster(ctx context.Context, d database) string {
	id, err := m.call(ctx, "ovsdb-tool", "db-cid", m.file(d))
	if err != nil {
		return ""
	}
	return id
}

// other is what is noted of a database in the place of a cluster, the zero value for nothing. A note
// alone may be older than the cluster, where the API server's own database is: the other
// one counts if a member serves it. Where nobody tells there is none: members start
// without an API server.
func (m *member) other(ctx context.Context, d database, cluster string) kube.Begun {
	if noted := m.noted(ctx, d); cluster != "" && noted.Cluster != cluster {
		return noted
	}
	return kube.Begun{}
}

// former tells that another cluster of a database has begun in the place of one.
func (m *member) former(ctx context.Context, d database, cluster string) bool {
	other := m.other(ctx, d, cluster).Cluster
	return other != "" && m.served(ctx, d, other)
}

// noted is what is noted of a database, the zero value where nobody tells.
func (m *member) noted(ctx context.Context, d database) kube.Begun {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	noted, err := m.self.Begun(ctx, d.name)
	if err != nil {
		return kube.Begun{}
	}
	return noted
}

// served tells that another member serves a cluster of a database.
func (m *member) served(ctx context.Context, d database, cluster string) bool {
	question := `["_Server",{"op":"select","table":"Database","where":[["name","==","` + d.name + `"]],"columns":["cid"]}]`
	for _, a := range m.all {
		if a == m.Address {
			continue
		}
		argv := append([]string{"ovsdb-client", "--timeout=5", "--no-leader-only"}, m.keys(fileCentral)...)
		if out, err := m.call(ctx, append(argv, "query", "ssl:"+at(a, d.clients), question)...); err == nil && strings.Contains(out, cluster) {
			return true
		}
	}
	return false
}

// follow returns when ctx ends, somebody restores databases here, or another member has
// begun their clusters anew. A note of a cluster that nobody serves for a while is
// replaced by that of this member's, if it has a leader; one that was begun anew has keepsAnew
// before.
func (m *member) follow(ctx context.Context) {
	tick := time.NewTicker(restoreLook)
	defer tick.Stop()
	own, astray := map[database]string{}, map[database]int{}
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := os.Stat(filepath.Join(m.Dir, fairlead.RestoreDir)); err == nil {
			return
		}
		if time.Since(last) < formerLook {
			continue
		}
		last = time.Now()
		for _, d := range []database{north, south} {
			if own[d] == "" {
				own[d] = m.cluster(ctx, d)
			}
			if m.replaced(ctx, d, own[d], astray) {
				return
			}
		}
	}
}

// replaced tells that another member serves another cluster of a database, in the place
// of this member's. astray counts the looks that found one noted which nobody serves.
func (m *member) replaced(ctx context.Context, d database, cluster string, astray map[database]int) bool {
	other := m.other(ctx, d, cluster)
	if other.Cluster != "" && m.served(ctx, d, other.Cluster) {
		return true
	}
	if astray[d]++; other.Cluster == "" || !m.led(ctx, d) {
		astray[d] = 0
	}
	switch kept := time.Since(other.Anew).Abs() < keepsAnew; {
	case astray[d] < looksAstray:
	case !kept:
		astray[d] = 0
		m.note(ctx, d, cluster)
	case astray[d] == looksAstray: // once
		m.Log.Warn("nobody serves the cluster that was begun anew: start the member on which the databases were restored; the one that runs goes on, and is noted when that member has not come by then",
			"database", d.name, "id", other.Cluster, "until", other.Anew.Add(keepsAnew))
	}
	return false
}

// led tells that a database's cluster has a leader.
func (m *member) led(ctx context.Context, d database) bool {
	_, err := m.state(ctx, d)
	return err == nil
}

func (m *member) note(ctx context.Context, d database, cluster string) {
	if err := m.self.Begin(ctx, d.name, cluster, true); err != nil {
		m.Log.Warn("nobody serves the cluster that is noted, and the one that runs is not noted: it is tried again", "database", d.name, "err", err)
		return
	}
	m.Log.Warn("nobody served the cluster that was noted: the one that runs is noted", "database", d.name, "id", cluster)
}

// filled is nil when the southbound database has what chassis need: one that began anew
// and is still empty would have each of them give up the flows of its pods. Where there
// is a chassis it had that before; else a controller says that all rows are there, and
// northd that it has read them.
func (m *member) filled(ctx context.Context) error {
	chassis, err := m.call(ctx, m.sbctl("--bare", "--columns=name", "list", "Chassis")...)
	if err != nil || chassis != "" {
		return err
	}
	changes, err := m.call(ctx, m.sbctl("get", "SB_Global", ".", "nb_cfg")...)
	if err == nil && changes == "0" {
		err = fmt.Errorf("%s is empty: no controller has said yet that all rows are in %s", south.name, north.name)
	}
	return err
}
