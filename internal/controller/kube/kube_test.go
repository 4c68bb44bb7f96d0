package kube_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

func TestMain(m *testing.M) { os.Exit(kubebed.Main(m)) }

const (
	patience = time.Minute // it decides how late a failure is seen
	tick     = 50 * time.Millisecond
	agent    = "fairlead-controller/test"
)

const podYAML = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: NS, annotations: {ovn.kubernetes.io/logical_switch: NS}}
spec: {nodeName: NS, containers: [{name: c, image: none}]}
`

const subnetYAML = `
apiVersion: kubeovn.io/v1
kind: Vpc
metadata: {name: NS}
spec: {enableBfd: true, namespaces: [NS-elsewhere], defaultSubnet: NS}
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: NS}
spec: {cidrBlock: "10.30.0.0/29,fd30::/125", vpc: NS, excludeIps: [10.30.0.4..10.30.0.6]}
`

var serving sync.Mutex

// alone gives the cluster that all tests share to one that has a controller serve
// it: two with a database each would write the same pods in turn.
func alone(t *testing.T) *kubebed.Cluster {
	t.Helper()
	serving.Lock()
	t.Cleanup(serving.Unlock)
	return kubebed.Shared(t)
}

// account is the controller's, with the rights that the chart gives it.
func account(t *testing.T, c *kubebed.Cluster) *rest.Config {
	t.Helper()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Merge([]byte("ovn: {enabled: true, nb: 'tcp:192.0.2.1:6641'}")))
	all, err := manifest.Render(v)
	require.NoError(t, err)
	for _, o := range all {
		if o.Name() == "fairlead-controller" && o.Kind() != "Deployment" {
			text, err := json.Marshal(o)
			require.NoError(t, err)
			c.Apply(string(text))
		}
	}
	as := c.ServiceAccountConfig("kube-system", "fairlead-controller")
	as.UserAgent = agent
	return as
}

// serve starts a controller over an API server and a northbound database.
func serve(t *testing.T, c *kubebed.Cluster, db *bed.Central) *kube.Cluster {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	objects, err := kube.New(account(t, c), log)
	require.NoError(t, err)
	var ctl *controller.Controller
	client := ovn.New(ovn.Config{Endpoint: db.NB(), Log: log,
		OnTouch: func(owner string, lost bool) { ctl.Touched(owner, lost) }, OnUp: func() { ctl.Resync() }})
	ctl = controller.New(controller.Config{World: objects.World(), DB: client, Log: log, Join: core.Subnet{Vpc: v1.DefaultVpc,
		Name: "join", Provider: v1.DefaultProvider,
		CIDRs: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("100.64.0.1")},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	wg.Go(func() { objects.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	require.Eventually(t, func() bool { return client.Connected() == nil }, patience, tick)
	wg.Go(func() { _ = ctl.Lead(ctx, "test") })
	return objects
}

// TestPodsAreAnnotated: on a real API server pods, nodes and Subnets are told
// what the database says, a pod in one write.
func TestPodsAreAnnotated(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	c.RegisterNode(ns)
	in := func(text, name string) string { return strings.NewReplacer("NS", ns, "NAME", name).Replace(text) }
	c.Apply(in(subnetYAML, ""))
	first := c.Apply(in(podYAML, "a"))[0]
	mark := c.Mark()
	objects := serve(t, c, db)

	get := func(args ...string) string {
		return strings.TrimSpace(c.Kubectl(append([]string{"get", "-n", ns}, args...)...))
	}
	note := func(what, name, key string) string {
		return get(what, name, "-o", "jsonpath={.metadata.annotations."+strings.ReplaceAll(key, ".", `\.`)+"}")
	}
	told := func(name string) func() bool {
		return func() bool {
			p, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && p.Annotations["ovn.kubernetes.io/routed"] == "true"
		}
	}
	require.Eventually(t, told("a"), patience, tick)
	require.Equal(t, "10.30.0.2,fd30::2", note("pod", "a", "ovn.kubernetes.io/ip_address"))
	require.Equal(t, ns, note("pod", "a", "ovn.kubernetes.io/logical_router"))
	require.Equal(t, `["`+note("pod", "a", "ovn.kubernetes.io/mac_address")+` 10.30.0.2 fd30::2"]`, db.Get("Logical_Switch_Port", "a."+ns, "addresses"))
	require.NotEqual(t, "[]", db.Get("Logical_Switch_Port", "a."+ns, "port_security"))
	require.Eventually(t, func() bool { return note("node", ns, "ovn.kubernetes.io/port_name") == "node-"+ns }, patience, tick)

	// What the objects say of themselves.
	is := func(want string, args ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, want, get(args...), args) }, patience, tick)
	}
	is("1 10.30.0.2 1 10.30.0.3 fd30::2", "subnet", ns, "-o",
		"jsonpath={.status.v4usingIPs} {.status.v4usingIPrange} {.status.v4availableIPs} {.status.v4availableIPrange} {.status.v6usingIPrange}")
	is("True 1", "subnet", ns, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]['status','observedGeneration']}`)
	is("spec.enableBfd", "vpc", ns, "-o", `jsonpath={.status.conditions[?(@.type=="NotImplemented")].message}`)

	is("True "+ns+` true ["`+ns+`"]`, "vpc", ns, "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.defaultLogicalSwitch} {.status.standby} {.status.subnets}`)

	// The default Vpc has an object although nobody declares it, which is made again.
	is("true [\"join\",\"ovn-default\"] ovn-default", "vpc", v1.DefaultVpc, "--ignore-not-found", "-o", "jsonpath={.status.standby} {.status.subnets} {.status.defaultLogicalSwitch}")
	c.Kubectl("delete", "vpc", v1.DefaultVpc)
	is("true [\"join\",\"ovn-default\"] ovn-default", "vpc", v1.DefaultVpc, "--ignore-not-found", "-o", "jsonpath={.status.standby} {.status.subnets} {.status.defaultLogicalSwitch}")

	// What no object declares has one that shows it, which is made again.
	is("100.64.0.0/16 ovn-cluster True", "subnet", "join", "--ignore-not-found", "-o", `jsonpath={.spec.cidrBlock} {.spec.vpc} {.status.conditions[?(@.type=="Ready")].status}`)
	own := netip.MustParseAddr(note("node", ns, "ovn.kubernetes.io/ip_address"))
	require.Eventually(t, func() bool { // beside those of other tests' nodes
		count, ranges, _ := strings.Cut(get("subnet", "join", "-o", "jsonpath={.status.v4usingIPs} {.status.v4usingIPrange}"), " ")
		used, has := 0, false
		for r := range strings.SplitSeq(ranges, ",") {
			from, to, many := strings.Cut(r, "-")
			if !many {
				to = from
			}
			first, err := netip.ParseAddr(from)
			last, failed := netip.ParseAddr(to)
			if err != nil || failed != nil {
				return false
			}
			for ip := first; !last.Less(ip); ip = ip.Next() {
				used, has = used+1, has || ip == own
			}
		}
		return has && count == strconv.Itoa(used)
	}, patience, tick)
	c.Kubectl("delete", "subnet", "ovn-default")
	is("10.16.0.0/16 true", "subnet", "ovn-default", "--ignore-not-found", "-o", "jsonpath={.spec.cidrBlock} {.spec.default}")

	// A namespace says where its pods come to; what it asks for by that is overwritten.
	notes := "jsonpath={.metadata.annotations['ovn\\.kubernetes\\.io/logical_switch','ovn\\.kubernetes\\.io/cidr','ovn\\.kubernetes\\.io/exclude_ips','ovn\\.kubernetes\\.io/ip_pool']}"
	is("ovn-default 10.16.0.0/16 10.16.0.1", "namespace", ns, "-o", notes)
	c.Kubectl("annotate", "--overwrite", "namespace", ns, "ovn.kubernetes.io/ip_pool=mine", "ovn.kubernetes.io/logical_switch="+ns)
	is("ovn-default 10.16.0.0/16 10.16.0.1", "namespace", ns, "-o", notes)

	// A full Subnet is told by an event, and on the pod itself for its agent; the next
	// pod has the address of the one that goes. Annotations of a Subnet that count are read of it.
	c.Kubectl("annotate", "subnet", ns, "fairlead.io/allocate=all")
	is("False", "subnet", ns, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	c.Kubectl("annotate", "subnet", ns, "fairlead.io/allocate-", "ovn.kubernetes.io/port_security=false")
	is("True", "subnet", ns, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	c.Apply(in(podYAML, "b"))
	require.Eventually(t, told("b"), patience, tick)
	require.Equal(t, "[]", db.Get("Logical_Switch_Port", "b."+ns, "port_security"))
	c.Apply(in(podYAML, "c"))
	is("AcquireAddressFailed Warning", "events", "--field-selector", "involvedObject.name=c", "-o", "jsonpath={range .items[*]}{.reason} {.type}{end}")
	require.Eventually(t, func() bool {
		return strings.Contains(note("pod", "c", v1.AnnNoAddress), "Subnet "+ns+" is full (IPv4: 2 in use of 2, ")
	}, patience, tick)
	c.Kubectl("delete", "pod", "a", "-n", ns, "--force", "--grace-period=0")
	require.Eventually(t, told("c"), patience, tick)
	require.Equal(t, "10.30.0.2", strings.Split(note("pod", "c", "ovn.kubernetes.io/ip_address"), ",")[0])
	require.NotContains(t, get("pod", "c", "-o", "yaml"), v1.AnnNoAddress)

	// What is gone it may ask.
	for k, want := range map[object.Key]bool{
		{Kind: object.KindNode, Name: ns}: false, object.KindService.Named("default", "kubernetes"): false, object.KindPolicy.Named(ns, "none"): true,
		object.KindGroup.Named("", "none"): true, object.KindVip.Named("", "none"): true,
	} {
		is, err := objects.World().Gone(t.Context(), k)
		require.NoError(t, err, k)
		require.Equal(t, want, is, k)
	}

	// An earlier pod of the name is not told what is another's.
	gone := object.Object{Key: object.Key{Kind: object.KindPod, Namespace: ns, Name: "c"}, UID: string(first.GetUID())}
	require.ErrorIs(t, objects.Annotate(t.Context(), gone, map[string]string{"test/never": "x"}), core.ErrNotFound)
	require.Empty(t, note("pod", "c", "test/never"))
	for _, name := range []string{"a", "b"} {
		patches := c.Requests(kubebed.Filter{Since: mark, UserAgent: agent, Verbs: []string{"patch"}, Resource: "pods", Namespace: ns, Name: name})
		// One; and at times another that changes nothing, by a look that read the pod before the
		// watch told of the first and wrote after.
		require.NotEmpty(t, patches)
		require.LessOrEqual(t, len(patches), 2, "%v\n%s", patches, get("events"))
	}
	c.Kubectl("delete", "pod", "b", "c", "-n", ns, "--force", "--grace-period=0")
	is("0 ''", "subnet", ns, "-o", "jsonpath={.status.v4usingIPs} '{.status.v4usingIPrange}'")
	c.Delete(in(subnetYAML, ""))
	require.Eventually(t, func() bool {
		return db.Get("Logical_Switch", ns, "name") == "" && db.Get("Logical_Router", ns, "name") == ""
	}, patience, tick)
}
