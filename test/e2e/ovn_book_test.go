package e2e

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// given is who has which, as annotations of pods and Nodes say it.
type given struct {
	pods    int
	routed  []string          // of OVN: PORT MAC IPS
	claimed []string          // of a Subnet without OVN: POD IP
	objects []string          // the IP objects that belong to them: PORT SUBNET IPS
	waits   []string          // pods that are not told all
	at      map[string]string // the node of each port of a pod or a node
}

// told are the addresses now. That one is given twice is the test's end.
func (o *ovnCluster) told() *given {
	t := o.t
	t.Helper()
	pods, err := o.c.Client().CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	nodes, err := o.c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	a := &given{at: map[string]string{}}
	for i := range pods.Items {
		if !pods.Items[i].Spec.HostNetwork {
			a.pod(&pods.Items[i])
		}
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; !a.port("node-"+n.Name, n.Name, n.Annotations) {
			a.waits = append(a.waits, n.Name)
		}
	}
	for _, lines := range [][]string{a.routed, a.claimed, a.objects} {
		slices.Sort(lines)
	}
	require.Empty(t, twice(append(slices.Clone(a.routed), a.claimed...)), "given twice")
	return a
}

// pod adds a pod: eth0 of OVN, and further networks, whose addresses are claims.
func (a *given) pod(p *corev1.Pod) {
	notes := p.Annotations
	if !a.port(p.Name+"."+p.Namespace, p.Spec.NodeName, notes) || notes["ovn.kubernetes.io/routed"] != "true" {
		a.waits = append(a.waits, p.Namespace+"/"+p.Name)
		return
	}
	claims := 0
	for key, ips := range notes {
		provider, ok := strings.CutSuffix(key, ".kubernetes.io/ip_address")
		if !ok || provider == "ovn" {
			continue
		}
		claims++
		for ip := range strings.SplitSeq(ips, ",") {
			a.claimed = append(a.claimed, p.Namespace+"/"+p.Name+" "+ip)
		}
		a.objects = append(a.objects, strings.Join([]string{p.Name + "." + p.Namespace + "." + provider, notes[provider+".kubernetes.io/logical_switch"], ips}, " "))
	}
	if claims == 0 && notes[networksKey] != "" {
		a.waits = append(a.waits, p.Namespace+"/"+p.Name)
		return
	}
	a.pods++
}

// port adds a port of OVN. false: its annotations do not say all.
func (a *given) port(name, node string, notes map[string]string) bool {
	say := func(key string) string { return notes["ovn.kubernetes.io/"+key] }
	mac, ips := say("mac_address"), say("ip_address")
	if mac == "" || ips == "" {
		return false
	}
	a.at[name] = node
	a.routed = append(a.routed, name+" "+mac+" "+strings.ReplaceAll(ips, ",", " "))
	a.objects = append(a.objects, name+" "+say("logical_switch")+" "+ips)
	return true
}

// twice is an address that is in two of the lines.
func twice(lines []string) string {
	by := map[string]string{}
	for _, line := range lines {
		for _, ip := range strings.Fields(line)[1:] {
			if by[ip] != "" {
				return fmt.Sprintf("%s is that of %q and of %q", ip, by[ip], line)
			}
			by[ip] = line
		}
	}
	return ""
}

// rows are the ports of pods and nodes as the northbound database says them: PORT MAC IPS.
func rows(c *ovn.Central) (lines []string) {
	for _, row := range columns(c.Nbctl, "Logical_Switch_Port", "name", "type", "addresses") {
		if row[1] == "" {
			lines = append(lines, row[0]+" "+row[2])
		}
	}
	slices.Sort(lines)
	return lines
}

// columns reads columns of a table by ovn-nbctl or ovn-sbctl.
func columns(ctl func(...string) string, table string, names ...string) [][]string {
	text := ctl("--format=csv", "--data=bare", "--no-headings", "--columns="+strings.Join(names, ","), "list", table)
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return [][]string{append([]string{err.Error()}, names...)} // which is nobody's row
	}
	return all
}

// unbound is "" when the southbound database binds each port of the northbound one, with
// its addresses, and nothing else; those of pods at no other node than at has for their
// names, and a node's own at the node.
func unbound(c *ovn.Central, at map[string]string) string {
	known := map[string]bool{}
	for _, row := range columns(c.Nbctl, "Logical_Switch_Port", "name") {
		known[row[0]] = true
	}
	for _, row := range columns(c.Nbctl, "Logical_Router_Port", "name") {
		known[row[0]], known["cr-"+row[0]] = true, true
	}
	nodes := map[string]string{}
	for _, row := range columns(c.Sbctl, "Chassis", "_uuid", "name") {
		nodes[row[0]] = row[1]
	}
	var bound []string
	for _, row := range columns(c.Sbctl, "Port_Binding", "logical_port", "type", "mac", "chassis") {
		name, node := row[0], row[3]
		switch {
		case !known[name]:
			return "the southbound database binds a port that is none: " + name
		case row[1] != "":
			continue
		case node != "" && nodes[node] != cmp.Or(at[name], strings.TrimPrefix(name, "node-")):
			return fmt.Sprintf("port %s is bound at %q, not at %q", name, nodes[node], at[name])
		}
		bound = append(bound, name+" "+row[2])
	}
	slices.Sort(bound)
	if want := rows(c); !slices.Equal(bound, want) {
		return fmt.Sprintf("bindings: %q, rows %q", bound, want)
	}
	return twice(bound)
}

// learnt is "" when no router wrote down a neighbour of IPv4 that OVN knows in any case,
// because that announced itself. Of IPv6 it does, whatever its options say.
func learnt(c *ovn.Central) string {
	known := map[string]bool{}
	for _, row := range columns(c.Nbctl, "Logical_Switch_Port", "addresses") {
		for _, address := range strings.Fields(row[0]) {
			known[address] = !strings.Contains(address, ":")
		}
	}
	for _, row := range columns(c.Sbctl, "MAC_Binding", "logical_port", "ip") {
		if known[row[1]] {
			return fmt.Sprintf("%s has written down where %s is", row[0], row[1])
		}
	}
	return ""
}

// agrees waits until there is no disagreement.
func (o *ovnCluster) agrees() {
	o.t.Helper()
	eventually(o.t, o.disagreement)
}

// disagreement is "" when annotations, rows of both databases, IP objects, claims and
// counts say one thing, nothing else has an address, and the controller that leads has
// nothing to do. That an address is given twice is the test's end.
func (o *ovnCluster) disagreement() string {
	o.t.Helper()
	said := o.told()
	if len(said.waits) > 0 {
		return fmt.Sprintf("without all their addresses: %v", said.waits)
	}
	for _, look := range []struct {
		what      string
		want, got []string
	}{
		{"rows of the database", said.routed, rows(o.central)},
		{"claims", said.claimed, o.lines("addressleases", "{.spec.owner.namespace}/{.spec.owner.name} {.spec.address}")},
		{"IP objects", said.objects, o.lines("ips", "{.metadata.name} {.spec.subnet} {.spec.ipAddress}")},
		{"Subnets count", o.counts(said.objects), o.lines("subnets", "{.metadata.name} {.status.v4usingIPs} {.status.v6usingIPs}")},
	} {
		if !slices.Equal(look.want, look.got) {
			return fmt.Sprintf("%s: %q, want %q", look.what, look.got, look.want)
		}
	}
	if why := unbound(o.central, said.at); why != "" {
		return why
	}
	return o.busy()
}

// lines is a line for each object of a kind, in order.
func (o *ovnCluster) lines(kind, template string) []string {
	o.t.Helper()
	return slices.Sorted(slices.Values(o.c.Lines(kind, template)))
}

// counts are what Subnets' statuses are to count where there are these IP objects.
func (o *ovnCluster) counts(objects []string) []string {
	o.t.Helper()
	count := map[string]*[2]int{}
	for _, name := range o.c.Lines("subnets", "{.metadata.name}") {
		count[name] = &[2]int{}
	}
	for _, line := range objects {
		f := strings.Fields(line)
		if c := count[f[1]]; c != nil { // the one of nodes need have no object
			for ip := range strings.SplitSeq(f[2], ",") {
				c[family(ip)]++
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%s %d %d", name, count[name][0], count[name][1]))
	}
	return out
}

// busy is "" when a controller leads and has nothing to do.
func (o *ovnCluster) busy() (why string) {
	o.t.Helper()
	for _, port := range o.probes {
		metrics := o.asks(port, "/metrics")
		if strings.Contains(metrics, "\nfairlead_controller_leading 1\n") && strings.Contains(metrics, "\nfairlead_controller_pending 0\n") {
			return ""
		}
		why += "no controller leads that has nothing to do: " + metrics
	}
	return why
}

// family is 0 for IPv4, 1 for IPv6.
func family(ip string) int {
	if strings.Contains(ip, ":") {
		return 1
	}
	return 0
}
