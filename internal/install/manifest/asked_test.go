package manifest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// askers are service accounts and their rights: kinds of NAD that they may ask
// own and far of the pod's namespace for, and kinds of subnet backend.
var askers = map[string]struct{ nads, subnets []string }{
	"default": {},
	"nets":    {nads: []string{"address", "mac", "rate", "vlan", "port", "device", "args"}},
	"some":    {nads: []string{"address", "rate"}},
	"backend": {subnets: []string{"subnet", "address", "mac", "rate", "security", "vlan"}},
}

// grantAskers gives the accounts their rights.
func (s *site) grantAskers() {
	s.t.Helper()
	of := func(resource string, kinds []string) (out []string) {
		for _, k := range kinds {
			out = append(out, strings.TrimSuffix(resource+"/"+k, "/subnet"))
		}
		return out
	}
	for name, a := range askers {
		rule := map[string]any{"verbs": []string{"use"}}
		kind, meta := "Role", map[string]any{"name": "asker-" + name, "namespace": s.ns}
		switch {
		case a.nads != nil:
			rule["apiGroups"], rule["resources"], rule["resourceNames"] = []string{"k8s.cni.cncf.io"}, of("network-attachment-definitions", a.nads), []string{"own", "far"}
		case a.subnets != nil:
			kind, meta = "ClusterRole", map[string]any{"name": "asker-" + name + "-" + s.ns}
			rule["apiGroups"], rule["resources"], rule["resourceNames"] = []string{"kubeovn.io"}, of("subnets", a.subnets), []string{"backend"}
		default:
			continue
		}
		for _, o := range []map[string]any{
			{"kind": kind, "rules": []any{rule}},
			{
				"kind": kind + "Binding", "roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": meta["name"]},
				"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": s.ns}},
			},
		} {
			o["apiVersion"], o["metadata"] = "rbac.authorization.k8s.io/v1", meta
			b, err := json.Marshal(o)
			require.NoError(s.t, err)
			s.Apply(string(b))
		}
	}
}

// thing is what an agent would give a pod: of a kind, on a network, in a subnet.
type thing struct{ kind, network, subnet string }

// may tells whether an account has the right to a thing: on the network, unless
// the pod's annotations put that into another subnet than its own, or in the
// subnet.
func may(account, ns string, g thing) bool {
	a := askers[account]
	own := slices.Contains([]string{ns + "/own", ns + "/far"}, g.network) && slices.Contains([]string{"", usual(g.network)}, g.subnet)
	return own && slices.Contains(a.nads, g.kind) || g.subnet == "backend" && slices.Contains(a.subnets, g.kind)
}

// usual is the subnet of a network that no annotation moves.
func usual(network string) string {
	if ns, name, ok := strings.Cut(network, "/"); ok {
		return "of-" + name + "." + ns + ".ovn"
	}
	return "ovn-default"
}

// kinds of what stands in core's values: "" is nothing that a tenant must be
// allowed to ask for. A new field is classified here, or the test fails.
var (
	nicKinds = map[string]string{
		"IPs": "address", "Pool": "address", "Routes": "address", "MAC": "mac", "QoS": "rate", "Bandwidth": "rate", "Ports": "port", "VLAN": "vlan",
		"Open": "security", "VIPs": "address",
		"Driver": "", "Provider": "", "Subnet": "", "Given": "", "MTU": "", "DefaultRoute": "", "Mirror": "", "Type": "", "IfaceID": "", "DNS": "", "Family": "", // Subnet by name, below
		"Hardware": "", "PlainVLAN": "", // annotations cannot say it: who may write PodNetworks and ConfigMaps is RBAC's
	}
	execKinds = map[string]string{
		"Conf": "", "Args": "", // both below
		"Type": "", "CNIVersion": "", "Path": "", "Prev": "", "Network": "", "DisableGC": "", "NoCheck": "", "DevInfo": "", "Failed": "", "Plain": "", "Former": "",
	}
	wantKinds = map[string]string{
		"Network": "", "Steps": "", // both below
		"IfName": "", "Default": "", "CNIVersion": "", "Gateways": "", "TakesDefault": "", "Args": "", "Request": "", "Declared": "", "DeclaredBy": "", "Claims": "", "Unasked": "", // as Hardware
	}
	confKinds = map[string]string{
		"ips": "address", "mac": "mac", "infinibandGUID": "mac", "bandwidth": "rate", "portMappings": "port",
		"deviceID": "device", "pciBusID": "device", "CNIDeviceInfoFile": "",
	}
	argKinds = map[string]string{"ips": "address", "mac": "mac", "bandwidth": "rate", "ingressrate": "rate", "egressrate": "rate", "deviceid": "device"}
)

// things are what wants have that annotations asked for.
func things(t *testing.T, ns string, wants []core.Want) (out []thing) {
	t.Helper()
	for _, w := range wants {
		classified(t, w, wantKinds)
		if at, _, ok := strings.Cut(w.Network, "/"); ok && at != ns && at != "default" {
			out = append(out, thing{kind: "", network: w.Network})
		}
		for _, s := range w.Steps {
			switch {
			case s.NIC != nil:
				out = append(out, ofNIC(t, w.Network, s.NIC)...)
			case s.Exec != nil:
				out = append(out, ofExec(t, w.Network, s.Exec)...)
			}
		}
	}
	return out
}

func classified(t *testing.T, v any, kinds map[string]string) {
	t.Helper()
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		_, ok := kinds[f.Name]
		require.True(t, ok || f.Anonymous, "%T.%s: what right does a tenant need for it (askers), if any?", v, f.Name)
	}
}

func ofNIC(t *testing.T, network string, n *core.NIC) (out []thing) {
	t.Helper()
	classified(t, *n, nicKinds)
	if n.Subnet.Name != usual(network) {
		out = append(out, thing{"subnet", network, n.Subnet.Name})
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[core.NIC]()) {
		v := reflect.ValueOf(*n).FieldByName(f.Name)
		empty := v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
		if kind := nicKinds[f.Name]; kind != "" && !empty {
			out = append(out, thing{kind, network, n.Subnet.Name})
		}
	}
	return out
}

func ofExec(t *testing.T, network string, x *core.Exec) (out []thing) {
	t.Helper()
	classified(t, *x, execKinds)
	var conf struct {
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
		DeviceID      string                     `json:"deviceID"`
		Args          struct {
			CNI map[string]any `json:"cni"`
		} `json:"args"`
	}
	require.NoError(t, json.Unmarshal(x.Conf, &conf))
	asked := slices.Collect(maps.Keys(conf.RuntimeConfig))
	if conf.DeviceID != "" {
		asked = append(asked, "deviceID")
	}
	for _, key := range asked {
		kind, ok := confKinds[key]
		require.True(t, ok, "what right does a tenant need for %s in a plugin's configuration, if any?", key)
		if kind != "" {
			out = append(out, thing{kind: kind, network: network})
		}
	}
	for arg, kind := range map[string]string{"IP=": "address", "MAC=": "mac"} {
		if strings.Contains(";"+x.Args, ";"+arg) {
			out = append(out, thing{kind: kind, network: network})
		}
	}
	for key := range keysWithin(conf.Args.CNI) {
		kind, ok := argKinds[strings.ReplaceAll(strings.ToLower(key), "ſ", "s")] // as plugins' reader of JSON folds case
		if !ok {
			kind = "args"
		}
		out = append(out, thing{kind: kind, network: network})
	}
	return out
}

// keysWithin are the keys of objects at any depth.
func keysWithin(v any) map[string]bool {
	out := map[string]bool{}
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			out[k] = true
			maps.Copy(out, keysWithin(inner))
		}
	case []any:
		for _, inner := range v {
			maps.Copy(out, keysWithin(inner))
		}
	}
	return out
}

// everywhere is a Source whose every namespace has the networks own, a NIC of
// Fairlead's, and far, which foreign plugins make; all with each capability.
type everywhere struct{ ns string }

func (e everywhere) Pod(_ context.Context, p core.Pod) (*resolve.Pod, error) {
	return nil, fmt.Errorf("pod %s: %w", p, core.ErrNotFound)
}

func (e everywhere) NAD(_ context.Context, ns, name string) (*resolve.NAD, error) {
	const caps = `"capabilities":{"ips":true,"mac":true,"infinibandGUID":true,"bandwidth":true,"portMappings":true,"deviceID":true}`
	config := map[string]string{
		"own": `{"cniVersion":"1.0.0","type":"fairlead",` + caps + `}`,
		"far": `{"cniVersion":"1.0.0","type":"far",` + caps + `}`,
	}[name]
	if config == "" {
		return nil, fmt.Errorf("NAD %s/%s: %w", ns, name, core.ErrNotFound)
	}
	return &resolve.NAD{Namespace: ns, Name: name, Config: config}, nil
}

func (e everywhere) Subnets(context.Context) (out []core.Subnet, _ error) {
	names := map[string]string{"backend": "ovn", "frontend": "ovn", "ovn-default": "ovn"}
	for _, ns := range []string{e.ns, "other", "default", "kube-system"} {
		names["of-own."+ns+".ovn"] = "own." + ns + ".ovn"
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, core.Subnet{
			Name: name, Provider: names[name], Default: name == "ovn-default",
			CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
		})
	}
	return out, nil
}

// grants are what the agent would give a pod with these annotations; nothing if
// it refuses them.
func grants(t *testing.T, ns string, notes map[string]string) []thing {
	t.Helper()
	wants, err := resolve.Resolve(t.Context(), everywhere{ns}, resolve.Input{Request: core.Request{
		Op: core.Add, Key: core.Key{Container: "0123456789abcdef", IfName: "eth0"}, Netns: "/run/netns/x", Path: []string{"/opt/cni/bin"},
		Pod: core.Pod{Namespace: ns, Name: "p"}, Args: map[string]string{},
		Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead", Annotations: notes, Raw: json.RawMessage(`{}`)},
	}})
	if err != nil {
		return nil
	}
	return things(t, ns, wants)
}

// TestNothingIsGivenUnasked sends every text of the table through the policies
// of a real API server, by each way on which annotations reach a pod, and
// through the agent: what the agent would make of the pod that comes out, the
// pod's account must have the right to.
func TestNothingIsGivenUnasked(t *testing.T) {
	s := newSite(t)
	s.grantAskers()
	require.Eventually(t, func() bool { // rights are read a moment after they were stored
		own := `[{"name":"own","mac":"02:00:00:00:00:01"}]`
		return s.create("probe", "nets", map[string]string{networksKey: own}) == nil &&
			s.create("probe", "some", map[string]string{networksKey: strings.ReplaceAll(own, `"mac":"02:00:00:00:00:01"`, `"ips":["10.1.0.9"]`)}) == nil &&
			s.create("probe", "backend", map[string]string{"ovn.kubernetes.io/logical_switch": "backend", "ovn.kubernetes.io/mac_address": "02:00:00:00:00:01"}) == nil
	}, time.Minute, 50*time.Millisecond)
	s.pod("runs", "", map[string]string{networksKey: `[{"name":"own"}]`})
	rows := texts(t, s.ns)
	require.Greater(t, len(rows), 300)
	classified(t, core.Want{}, wantKinds) // here, where a failure ends the test: a worker's would leave it waiting
	classified(t, core.NIC{}, nicKinds)
	classified(t, core.Exec{}, execKinds)
	var given, refused int
	work, done := make(chan text), make(chan outcome)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for r := range work {
				for _, way := range s.ways(r, grants(t, s.ns, r.notes)) {
					done <- s.send(r, way)
				}
			}
		})
	}
	go func() {
		for _, r := range rows {
			work <- r
		}
		close(work)
		workers.Wait()
		close(done)
	}()
	for o := range done {
		if !o.through {
			refused++
			require.False(t, slices.Contains(o.text.allowed, o.way.account) && o.way.sub == "create", "%s, %s: %v\n%v", o.way, o.text.name, o.text.notes, o.err)
			continue
		}
		for _, g := range grants(t, s.ns, o.pod) {
			given++
			if !may(o.way.account, s.ns, g) {
				t.Errorf("%s, %s: %v gives %+v, which account %s has no right to", o.way, o.text.name, o.pod, g, o.way.account)
			}
		}
	}
	require.NotZero(t, given)
	t.Logf("%d texts: %d times something was given, %d times refused", len(rows), given, refused)
}

// way is one by which annotations reach a pod of an account.
type way struct{ sub, account string }

func (w way) String() string { return w.sub + " as " + w.account }

// ways are those by which a text can prove something: a new pod of an account
// that has no right to all that the agent makes of it, or must get through; and
// changes of the running pod "runs", whose account is default. Each text
// goes at least one way.
func (s *site) ways(r text, gives []thing) (out []way) {
	for _, account := range r.accounts {
		forbidden := func(g thing) bool { return !may(account, s.ns, g) }
		if slices.Contains(r.allowed, account) || slices.ContainsFunc(gives, forbidden) {
			out = append(out, way{"create", account})
		}
	}
	if len(gives) == 0 {
		return append(out, way{"create", "default"})
	}
	for _, sub := range r.changes {
		out = append(out, way{sub, "default"})
	}
	return out
}

// outcome is what became of a text: the annotations of the pod that comes out.
type outcome struct {
	text    text
	way     way
	pod     map[string]string
	through bool
	err     error
}

// send asks the server what would become of a text.
func (s *site) send(r text, w way) outcome {
	o := outcome{text: r, way: w}
	ctx, dry := s.t.Context(), []string{metav1.DryRunAll}
	pods := s.tenant.CoreV1().Pods(s.ns)
	var pod *core1.Pod
	switch w.sub {
	case "create":
		pod, o.err = pods.Create(ctx, &core1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "asks", Annotations: r.notes},
			Spec:       core1.PodSpec{ServiceAccountName: w.account, Containers: []core1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{DryRun: dry})
	case "pods/binding", "bindings":
		b := &core1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "runs", Annotations: r.notes}, Target: core1.ObjectReference{Kind: "Node", Name: "n"}}
		path := []string{"bindings"}
		if w.sub == "pods/binding" {
			path = []string{"pods", "runs", "binding"}
		}
		o.err = s.tenant.CoreV1().RESTClient().Post().Namespace(s.ns).Resource(path[0]).Suffix(path[1:]...).
			VersionedParams(&metav1.CreateOptions{DryRun: dry}, scheme.ParameterCodec).Body(b).Do(ctx).Error()
		pod = &core1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: r.notes}} // laid over the pod's
	default:
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": r.notes}})
		if err != nil {
			o.err = err
			return o
		}
		pod, o.err = pods.Patch(ctx, "runs", types.MergePatchType, body, metav1.PatchOptions{DryRun: dry}, strings.Fields(w.sub)...)
	}
	if o.err == nil {
		o.through, o.pod = true, pod.Annotations
	}
	return o
}
