package up

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/api/agent"
)

// Looker sees how the pods of a folder are.
type Looker struct {
	// Declared reads the folder: its pods, and what is wrong with its files.
	Declared func() (pods []*v1.Pod, problems []string, err error)
	// Pods are those that the node loop has, with their status.
	Pods func(context.Context) ([]v1.Pod, error)
	// Networks are what the agent has given to pods.
	Networks func(context.Context) (agent.PodList, error)
}

// Row is one pod of the table.
type Row struct {
	Name, State, IP, Networks string
	// Why says of a pod that is not up what it waits for.
	Why string
	// Up: it is ready, or has done all that it was to do.
	Up bool
}

// Sight is what was seen at one time.
type Sight struct {
	Rows []Row
	// Problems of the folder's files. What such a file declares now is not in force.
	Problems []string
}

// Missing are the rows that are not up.
func (s Sight) Missing() []Row {
	return slices.DeleteFunc(slices.Clone(s.Rows), func(r Row) bool { return r.Up })
}

// Look asks once. A declared pod that the node loop does not know yet has a row.
func (l Looker) Look(ctx context.Context) (Sight, error) {
	declared, problems, err := l.Declared()
	if err != nil {
		return Sight{}, err
	}
	have, err := l.Pods(ctx)
	if err != nil {
		return Sight{}, err
	}
	nets, err := l.Networks(ctx)
	if err != nil {
		return Sight{}, err
	}
	s := Sight{Problems: problems}
	known := map[string]bool{}
	for i := range have {
		p := &have[i]
		known[string(p.UID)] = true
		s.Rows = append(s.Rows, rowOf(p, nets))
	}
	for _, p := range declared {
		if !known[string(p.UID)] {
			s.Rows = append(s.Rows, Row{Name: p.Namespace + "/" + p.Name, State: "Pending", Why: "not begun yet"})
		}
	}
	slices.SortStableFunc(s.Rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

func rowOf(p *v1.Pod, nets agent.PodList) Row {
	r := Row{Name: p.Namespace + "/" + p.Name, Networks: networksOf(p, nets)}
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	r.IP = strings.Join(ips, ",")
	r.State, r.Why, r.Up = stateOf(p)
	return r
}

// terminating is the node loop's word for a pod that is being ended.
const terminating = "Terminating"

// stateOf is a pod's state in one word, as kubectl's, and the reason for it.
func stateOf(p *v1.Pod) (state, why string, up bool) {
	s := &p.Status
	switch {
	case s.Reason == terminating:
		return terminating, "it is being ended", false
	case s.Phase == v1.PodSucceeded:
		return "Completed", "", true
	}
	for _, c := range s.Conditions {
		if c.Type != v1.PodReady {
			continue
		}
		if c.Status == v1.ConditionTrue {
			return "Running", "", true
		}
		why = cmp.Or(c.Message, c.Reason)
	}
	why = cmp.Or(why, s.Message, s.Reason)
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return cmp.Or(s.Reason, w.Reason), why, false
		}
	}
	if s.Phase == v1.PodRunning {
		return "NotReady", why, false
	}
	return cmp.Or(s.Reason, string(s.Phase)), why, false
}

// networksOf lists a pod's interfaces: eth0=fairlead, net1=default/storage 10.20.0.2.
func networksOf(p *v1.Pod, nets agent.PodList) string {
	var out []string
	for _, n := range nets.Items {
		if n.Namespace != p.Namespace || n.Name != p.Name {
			continue
		}
		for _, a := range n.Attachments {
			for _, i := range a.Interfaces {
				out = append(out, network(i, p.Status.PodIP))
			}
		}
	}
	return strings.Join(out, ", ")
}

func network(i agent.Interface, podIP string) string {
	text := i.Name + "=" + i.Network
	for _, a := range i.Addresses {
		if i.Addresses[0].Addr().String() != podIP { // the pod's own have a column
			text += " " + a.Addr().String()
		}
	}
	if i.VLAN != 0 {
		text += fmt.Sprintf(" vlan %d", i.VLAN)
	}
	if q := i.QoS; q != nil && q.IngressMbps+q.EgressMbps > 0 {
		text += fmt.Sprintf(" %d/%d Mbit", q.IngressMbps, q.EgressMbps)
	}
	return text
}

// Print writes the table.
func (s Sight) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tSTATE\tIP\tNETWORKS")
	for _, r := range s.Rows {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Name, r.State, cmp.Or(r.IP, "-"), cmp.Or(r.Networks, "-"))
	}
	return t.Flush()
}

// Periods of Follow and Wait.
const (
	lookEvery   = time.Second
	lookAtLeast = 10 * time.Second // at files and networks, though no pod has changed
	showAfter   = 30 * time.Second // the table, though some pod is not up
)

// Wait looks until all pods are up or ctx ends, and returns the last sight. Its
// error says only that nothing was seen.
func (l Looker) Wait(ctx context.Context) (Sight, error) {
	var last Sight
	var err error
	for {
		var s Sight
		if s, err = l.Look(ctx); err == nil {
			last = s
			if len(s.Missing()) == 0 {
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			if len(last.Rows) > 0 {
				return last, nil
			}
			return last, err
		case <-time.After(lookEvery / 4):
		}
	}
}

// Follow prints the table when all pods are up, or after a while, and then a
// line for each change, until ctx ends.
func (l Looker) Follow(ctx context.Context, w io.Writer) {
	first, stop := context.WithTimeout(ctx, showAfter)
	before, err := l.Wait(first)
	stop()
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		_ = before.Print(w)
		for _, p := range before.Problems {
			_, _ = fmt.Fprintln(w, "!", p)
		}
		before.explain(w)
	}
	var seen []v1.Pod
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
		pods, err := l.Pods(ctx)
		if err != nil || reflect.DeepEqual(pods, seen) && time.Since(looked) < lookAtLeast {
			continue // with an error: a part is being restarted, and the log says so
		}
		now, err := l.Look(ctx)
		if err != nil {
			continue
		}
		changes(w, before, now)
		before, seen, looked = now, pods, time.Now()
	}
}

// explain writes of each pod that is not up why.
func (s Sight) explain(w io.Writer) {
	for _, r := range s.Missing() {
		_, _ = fmt.Fprintf(w, "! %s: %s\n", r.Name, cmp.Or(r.Why, r.State))
	}
}

// changes writes a line for each row that is new, other or gone.
func changes(w io.Writer, before, now Sight) {
	stamp := time.Now().Format(time.TimeOnly)
	for _, r := range now.Rows {
		if !slices.Contains(before.Rows, r) {
			_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join([]string{stamp, r.Name, r.State, r.IP, r.Networks, r.Why}, "  "), " "))
		}
	}
	for _, r := range before.Rows {
		if !slices.ContainsFunc(now.Rows, func(n Row) bool { return n.Name == r.Name }) {
			_, _ = fmt.Fprintln(w, stamp, "", r.Name, " removed")
		}
	}
	for _, p := range now.Problems {
		if !slices.Contains(before.Problems, p) {
			_, _ = fmt.Fprintln(w, stamp, "", "!", p)
		}
	}
}
