package question

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ovs/rows"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

const (
	onlyCluster = "cluster" // a switch

	lookLimit = 10 * time.Second // of one look; another is not kept from its own
	settling  = 3 * time.Second  // what is on its way has this long
	again     = 200 * time.Millisecond
)

// HealthFlags are those that Health is told by.
func HealthFlags() []Flag {
	return append(endFlags(), Flag{Name: onlyCluster, Switch: true, Usage: "of a cluster with OVN its central part, certificates and controllers alone, as in a container of central"},
		Flag{Name: "central-dir", Default: defaultCentral, Usage: "`folder` of a member of central on this machine, or in this container: its certificates"})
}

// Given are the values of flags.
func Given(flags []Flag, value func(name string) string) map[string]string {
	out := map[string]string{}
	for _, f := range flags {
		out[f.Name] = value(f.Name)
	}
	return out
}

// Health examines OVN's central part, certificates and controllers of a cluster, as far
// as they are reached from here; where nothing of them is, nothing is said.
func Health(ctx context.Context, a Asked) (out []doctor.Finding) {
	h := health{a, time.Now()}
	for _, look := range []func(context.Context) []doctor.Finding{
		func(ctx context.Context) []doctor.Finding { return h.cluster(ctx, north0) },
		func(ctx context.Context) []doctor.Finding { return h.cluster(ctx, south0) },
		h.changes, h.certificates, h.bundles, h.controllers,
	} {
		bounded, cancel := context.WithTimeout(ctx, lookLimit)
		out = append(out, look(bounded)...)
		cancel()
	}
	return out
}

// Beside has a doctor look at the cluster too, unless its machine is one alone.
func Beside(c *doctor.Config, o client.Origin, flag func(name string) string) {
	a := Asked{Origin: o, Flags: Given(HealthFlags(), flag)}
	a.Flags["ovsdb"], a.Flags["state-dir"] = c.OVSDB, c.StateDir
	if c.OnlyMore = a.On(onlyCluster); c.Objects != "" && !c.OnlyMore {
		return
	}
	c.More = func(ctx context.Context) []doctor.Finding {
		out := Health(ctx, a)
		if len(out) == 0 && c.OnlyMore {
			out = []doctor.Finding{finding("reach", doctor.Failed, "give --kubeconfig, or run it on a node, or in a member of central: kubectl -n "+a.Flags["install-namespace"]+" exec ds/fairlead-central -- fairlead doctor --cluster",
				"nothing of a cluster with OVN is reached from here")}
		}
		return out
	}
}

// health is one examination.
type health struct {
	Asked
	now time.Time
}

// finding is a doctor's, about the cluster.
func finding(name string, v doctor.Verdict, next, format string, args ...any) doctor.Finding {
	return doctor.Finding{Group: "Cluster", Name: name, Verdict: v, Reason: fmt.Sprintf(format, args...), Next: next}
}

// pods is the command that shows a part's pods.
func (h health) pods(part string) string {
	return "kubectl -n " + h.Flags["install-namespace"] + " get pods -o wide -l app.kubernetes.io/name=" + part
}

// settled looks again while what it sees may be on its way to be well.
func settled(ctx context.Context, look func(context.Context) doctor.Finding) doctor.Finding {
	for end := time.Now().Add(settling); ; {
		f := look(ctx)
		if f.Verdict == doctor.OK || time.Now().After(end) {
			return f
		}
		select {
		case <-ctx.Done():
			return f
		case <-time.After(again):
		}
	}
}

// changes tells which of the numbered changes northd and the chassis have carried out.
func (h health) changes(ctx context.Context) []doctor.Finding {
	sb, err := southOf(ctx, h.Asked)
	if err != nil || unshown(sb) {
		return nil // there is no OVN, or a check of this machine says what is missing
	}
	nb, err := northOf(ctx, h.Asked)
	if err != nil || unshown(nb) {
		nb = rows.Place{}
	}
	return append(append(h.restored(ctx, nb), doctor.Joined(ctx, nb, sb)...), settled(ctx, func(ctx context.Context) doctor.Finding {
		f, err := h.lag(ctx, nb, sb)
		if err != nil {
			return finding("changes carried out", doctor.Failed, h.pods("fairlead-central"), "OVN's databases do not tell: %v", err)
		}
		return f
	}))
}

// restoredFor is how long it is told that the API server's objects are those of a snapshot.
const restoredFor = 24 * time.Hour

// restored tells, for a while, that the API server's database went back.
func (h health) restored(ctx context.Context, nb rows.Place) []doctor.Finding {
	at, err := progressOf(ctx, nb)
	parts := strings.Fields(at.back)
	if err != nil || len(parts) != 3 {
		return nil // a database that does not answer the next line tells
	}
	if when, err := time.Parse(time.RFC3339, parts[0]); err != nil || h.now.Sub(when) > restoredFor {
		return nil
	}
	return []doctor.Finding{finding("API server's database", doctor.Warning,
		"see that kubelets and the cluster's own controllers were restarted since then: their watches tell nothing",
		"it was restored from an old snapshot: seen at %s, its revision was %s and became %s", parts[0], parts[1], parts[2])}
}

// progress is how far a change has come, by its number.
type progress struct {
	asked, northd int
	known         bool // the northbound database was asked
	leader        string
	back          string // when the API server's database went back (ovn.KeyBack)
}

func progressOf(ctx context.Context, place rows.Place) (p progress, err error) {
	if place.Endpoint == "" {
		return p, nil
	}
	db, err := rows.Open(ctx, rows.Northbound, place, false)
	if err != nil {
		return p, err
	}
	defer db.Close()
	found, err := db.Select(ctx, "NB_Global", []string{"nb_cfg", "sb_cfg", "external_ids"})
	if err != nil || len(found) == 0 {
		return p, err
	}
	p = progress{asked: rows.Number(found[0]["nb_cfg"]), northd: rows.Number(found[0]["sb_cfg"]), known: true}
	ids := rows.Map(found[0]["external_ids"])
	if p.back = ids["fairlead-api-went-back"]; ids["fairlead-holder"] != "" {
		p.leader = "controller " + ids["fairlead-holder"] + " writes, epoch " + ids["fairlead-epoch"]
	}
	return p, nil
}

// lag compares the number of the last change with what each has carried out.
func (h health) lag(ctx context.Context, nb, sb rows.Place) (doctor.Finding, error) {
	const name = "changes carried out"
	at, err := progressOf(ctx, nb)
	if err != nil {
		return doctor.Finding{}, err
	}
	last, all, behind, err := chassisBehind(ctx, sb)
	if err != nil {
		return doctor.Finding{}, err
	}
	f := finding(name, doctor.OK, "", "all %d chassis have change %d", all, last)
	switch {
	case at.known && at.northd < at.asked:
		f = finding(name, doctor.Failed, h.pods("fairlead-central")+"; kubectl logs of them, for northd", "ovn-northd is behind: change %d of %d is in the southbound database", at.northd, at.asked)
	case len(behind) > 0:
		f = finding(name, doctor.Warning, h.pods("fairlead-chassis")+"; of a node that is gone: fairlead ovn sbctl chassis-del NAME", "%d of %d chassis do not have change %d: what came since is not in force there", len(behind), all, last)
		f.Details = behind
	case last == 0:
		f.Reason = "none has a number yet: `fairlead ovn nbctl -- --wait=hv sync` gives one, and waits for every chassis"
	}
	if at.leader != "" {
		f.Details = append(f.Details, at.leader)
	}
	return f, nil
}

// chassisBehind gives the number of the last change that northd has passed on, how many
// chassis there are, and those that do not have it.
func chassisBehind(ctx context.Context, sb rows.Place) (last, all int, behind []string, err error) {
	db, err := rows.Open(ctx, rows.Southbound, sb, false)
	if err != nil {
		return 0, 0, nil, err
	}
	defer db.Close()
	global, err := db.Select(ctx, "SB_Global", []string{"nb_cfg"})
	if err != nil {
		return 0, 0, nil, err
	}
	for _, r := range global {
		last = rows.Number(r["nb_cfg"])
	}
	found, err := db.Select(ctx, "Chassis_Private", []string{"name", "nb_cfg"})
	for _, r := range found {
		if n := rows.Number(r["nb_cfg"]); n < last {
			behind = append(behind, fmt.Sprintf("chassis %s has change %d", rows.Text(r["name"]), n))
		}
	}
	slices.Sort(behind)
	return last, len(found), behind, err
}

// controllers tells by their Leases who leads, and who keeps the CAs.
func (h health) controllers(ctx context.Context) (out []doctor.Finding) {
	if h.API == nil {
		return nil
	}
	for _, l := range []struct{ lease, what, lost string }{
		{controllerName, "controller", "new pods get no address, changes stay undone"},
		{fairlead.CAName, "keeper of the CAs", "no certificate is signed or renewed"},
	} {
		o, err := h.API.Get(ctx, query.Leases, h.Flags["install-namespace"], l.lease)
		if errors.Is(err, core.ErrNotFound) {
			if _, err := h.API.Get(ctx, query.Deployments, h.Flags["install-namespace"], controllerName); err == nil {
				out = append(out, finding(l.what, doctor.Failed, h.pods(controllerName), "none has ever led: %s", l.lost))
			}
			continue // a cluster without OVN
		}
		if err != nil {
			out = append(out, finding(l.what, doctor.Warning, "as one who may get leases in "+h.Flags["install-namespace"], "not known: %v", err))
			continue
		}
		out = append(out, h.lease(l.what, l.lost, o))
	}
	return out
}

// lease judges a Lease by its holder's last renewal.
func (h health) lease(what, lost string, o query.Object) doctor.Finding {
	var spec struct {
		Holder  string    `json:"holderIdentity"`
		Seconds int       `json:"leaseDurationSeconds"`
		Renewed time.Time `json:"renewTime"`
	}
	if err := query.Read(o.Spec, &spec); err != nil {
		return finding(what, doctor.Warning, "kubectl -n "+o.Metadata.Namespace+" get lease "+o.Metadata.Name+" -o yaml", "its Lease cannot be read: %v", err)
	}
	ago := h.now.Sub(spec.Renewed).Round(time.Second)
	next := h.pods(controllerName) + "; its log says what it waits for"
	switch {
	case spec.Holder == "":
		return finding(what, doctor.Failed, next, "nobody leads: %s", lost)
	case ago > time.Duration(spec.Seconds)*time.Second:
		return finding(what, doctor.Failed, next, "%s led, and has not renewed its Lease for %s by this machine's clock (it is good for %d s): %s", spec.Holder, ago, spec.Seconds, lost)
	}
	return finding(what, doctor.OK, "", "%s, which renewed its Lease %s ago", spec.Holder, max(ago, 0))
}

// unshown tells that a database takes certificates and none is at hand.
func unshown(p rows.Place) bool {
	return strings.Contains(p.Endpoint, "ssl:") && p.TLS == (rows.TLS{})
}
