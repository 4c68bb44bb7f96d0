package manifest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// site is a cluster in which the chart's policies deny, and a tenant in it who
// may write pods.
type site struct {
	*kube.Cluster
	t      *testing.T
	ns     string
	tenant kubernetes.Interface
	root   kubernetes.Interface
}

const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods}
rules: [{apiGroups: [""], resources: [pods, pods/status, pods/binding, bindings, pods/ephemeralcontainers, pods/resize], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pods}
subjects: [{kind: User, name: tenant, apiGroup: rbac.authorization.k8s.io}, {kind: User, name: controller, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: backend}
rules: [{apiGroups: [kubeovn.io], resources: [subnets, subnets/address], resourceNames: [backend], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all}
rules: [{apiGroups: [kubeovn.io, k8s.cni.cncf.io], resources: ["*"], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: manager}
rules: [{apiGroups: [kubeovn.io], resources: [subnets], verbs: [manage]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manager}
subjects: [{kind: User, name: controller, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: backend-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: backend}
subjects: [{kind: ServiceAccount, name: backend, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}
subjects: [{kind: ServiceAccount, name: all, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: storage, namespace: NS}
rules: [{apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions/address], resourceNames: [storage], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: storage, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: storage}
subjects: [{kind: ServiceAccount, name: storage, namespace: NS}]
`

// newSite puts the chart into the cluster, with policies that deny.
func newSite(t *testing.T) *site {
	t.Helper()
	c := kube.Shared(t)
	s := &site{Cluster: c, t: t, ns: c.Namespace()}
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("policies.requests.actions=[Deny]"))
	require.NoError(t, v.Set("ovn.enabled=true"))
	require.NoError(t, v.Set("ovn.nb=tcp:192.0.2.1:6641"))
	objects, err := manifest.Render(v)
	require.NoError(t, err)
	text, err := manifest.YAML(objects)
	require.NoError(t, err)
	c.Apply(string(text))
	c.Apply(strings.ReplaceAll(rights, "NS", s.ns))
	s.root = s.client(c.Admin())
	s.tenant = s.client(c.User("tenant"))
	s.await()
	return s
}

func (s *site) client(cfg *rest.Config) kubernetes.Interface {
	s.t.Helper()
	k, err := kubernetes.NewForConfig(cfg)
	require.NoError(s.t, err)
	return k
}

// await returns when the server, which reads policies and rights a moment after
// they were stored, enforces them.
func (s *site) await() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.create("probe", "default", map[string]string{"ovn.kubernetes.io/ip_address": "10.0.0.1"}) != nil &&
			s.create("probe", "all", map[string]string{"ovn.kubernetes.io/ip_address": "10.0.0.1"}) == nil &&
			s.create("probe", "all", map[string]string{"ovn.kubernetes.io/allocated": "true"}) != nil &&
			s.create("probe", "default", map[string]string{"ovn.kubernetes.io/eip": "192.0.2.50"}) != nil &&
			s.create("probe", "all", map[string]string{"ovn.kubernetes.io/eip": "192.0.2.50"}) == nil &&
			s.create("probe", "storage", map[string]string{"k8s.v1.cni.cncf.io/networks": `[{"name":"storage","ips":["1.1.1.1"]}]`}) == nil &&
			s.annotate(s.tenant, "", map[string]any{"ovn.kubernetes.io/ip_address": "10.0.0.2"}) != nil
	}, time.Minute, 50*time.Millisecond)
}

// create makes a pod as the tenant and takes it away again.
func (s *site) create(name, account string, annotations map[string]string) error {
	pod := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       core.PodSpec{ServiceAccountName: account, Containers: []core.Container{{Name: "c", Image: "none"}}},
	}
	_, err := s.tenant.CoreV1().Pods(s.ns).Create(s.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// pod makes a pod that stays, as the administrator.
func (s *site) pod(name, node string, annotations map[string]string) {
	s.t.Helper()
	pod := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       core.PodSpec{NodeName: node, ServiceAccountName: "default", Containers: []core.Container{{Name: "c", Image: "none"}}},
	}
	_, err := s.root.CoreV1().Pods(s.ns).Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

// annotate patches the annotations of pod "there", which it makes if missing;
// nil takes a key away. sub is "", "status" or another subresource.
func (s *site) annotate(as kubernetes.Interface, sub string, annotations map[string]any) error {
	s.t.Helper()
	_, err := s.root.CoreV1().Pods(s.ns).Get(s.t.Context(), "there", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.pod("there", "", map[string]string{
			"ovn.kubernetes.io/ip_address": "10.0.0.1", "other": "x",
			"k8s.v1.cni.cncf.io/networks": `[{"name":"storage","ips":["10.1.0.1"]}]`,
		})
	}
	return patch(s.t.Context(), as, s.ns, "there", sub, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

func patch(ctx context.Context, as kubernetes.Interface, ns, name, sub string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var subs []string
	if sub != "" {
		subs = append(subs, sub)
	}
	_, err = as.CoreV1().Pods(ns).Patch(ctx, name, types.MergePatchType, b, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subs...)
	return err
}

// TestWhoMayAsk: annotations of a new pod against the rights of its service
// account (reliability.md, Security).
func TestWhoMayAsk(t *testing.T) {
	s := newSite(t)
	const nets = "k8s.v1.cni.cncf.io/networks"
	backend := map[string]string{"ovn.kubernetes.io/logical_switch": "backend"}
	with := func(base map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range base {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for _, c := range []struct {
		account string
		ask     map[string]string
		refused string // what the message must name; "" is allowed
	}{
		{"default", nil, ""},
		{"default", with(nil, "kubernetes.io/ingress-bandwidth", "10M"), ""},
		{"default", with(nil, nets, "storage,default/b@net7"), ""},
		{"default", with(nil, nets, "storage,other/b@net7"), "verb use on network-attachment-definitions (k8s.cni.cncf.io) of other/b"},
		{"default", with(nil, "v1.multus-cni.io/default-network", "b"), "of kube-system/b"},
		{"all", with(nil, nets, "storage,other/b@net7"), ""},
		{"default", with(nil, nets, `[{"name":"storage","interface":"net5"}]`), ""},
		{"default", with(nil, "example.com/ip_address", "10.0.0.1"), ""},
		{"", with(nil, "ovn.kubernetes.io/ip_address", "10.0.0.1"), s.ns + "/default"},
		{"default", with(nil, "ovn.kubernetes.io/ip_address", "10.0.0.1"), "subnets/address"},
		{"default", with(nil, "ovn.kubernetes.io/ip_pool", "10.0.0.1,10.0.0.2"), "subnets/address"},
		{"default", with(nil, "ovn.kubernetes.io/mac_address", "02:00:00:00:00:01"), "subnets/mac"},
		{"default", with(nil, "ovn.kubernetes.io/port_security", "false"), "subnets/security"},
		{"default", with(nil, "ovn.kubernetes.io/port_vips", "10.0.0.9"), "subnets/address"},
		{"default", with(nil, "ovn.kubernetes.io/security_groups", "open"), "subnets/security"},
		{"default", with(nil, "ovn.kubernetes.io/aaps", "v"), "subnets/address"},
		{"default", with(nil, "ovn.kubernetes.io/vlan_id", "5"), "subnets/vlan"},
		{"default", with(nil, "ovn.kubernetes.io/ingress_rate", "5"), "subnets/rate"},
		{"default", with(nil, "ovn.kubernetes.io/latency", "5"), "subnets/rate"},
		{"default", backend, "subnets (kubeovn.io)"},
		{"default", with(nil, "storage.prod.ovn.kubernetes.io/ip_address", "10.0.0.1"), "subnets/address"},
		{"default", with(nil, "storage.prod.kubernetes.io/ip_address.net2", "10.0.0.1"), "subnets/address"},
		// Rights to one subnet: only for pods that name it, for every interface.
		{"backend", backend, ""},
		{"backend", with(backend, "ovn.kubernetes.io/ip_address", "10.0.0.1"), ""},
		{"backend", with(backend, "ovn.kubernetes.io/mac_address", "02:00:00:00:00:01"), "subnets/mac"},
		{"backend", with(backend, "ovn.kubernetes.io/eip", "192.0.2.50"), "subnets/outside (kubeovn.io), of all subnets"},
		{"backend", with(backend, "ovn.kubernetes.io/snat", "192.0.2.50"), "subnets/outside (kubeovn.io), of all subnets"},
		{"backend", with(nil, "ovn.kubernetes.io/ip_address", "10.0.0.1"), "does not name its own"},
		{"backend", with(nil, "ovn.kubernetes.io/logical_switch", "frontend"), "of frontend"},
		{"backend", with(backend, "storage.prod.ovn.kubernetes.io/ip_address", "10.0.0.1"), "does not name its own"},
		{"backend", with(backend, "ovn.kubernetes.io/ip_address", "10.0.0.1",
			"storage.prod.ovn.net1.kubernetes.io/logical_switch", "frontend"), "of backend, frontend"},
		{"all", with(backend, "ovn.kubernetes.io/ip_address", "10.0.0.1", "ovn.kubernetes.io/vlan_id", "5",
			"ovn.kubernetes.io/egress_rate", "5", "ovn.kubernetes.io/mac_address", "02:00:00:00:00:01"), ""},
		// Elements of networks.
		{"default", with(nil, nets, `[{"name":"storage","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"default", with(nil, nets, `[{"name":"storage","mac":"02:00:00:00:00:01"}]`), "network-attachment-definitions/mac"},
		{"default", with(nil, nets, `[{"name":"storage","infiniband-guid":"c2:11:22:33:44:55:66:77"}]`), "network-attachment-definitions/mac"},
		{"default", with(nil, nets, `[{"name":"storage","bandwidth":{"ingressRate":5}}]`), "network-attachment-definitions/rate"},
		{"default", with(nil, nets, `[{"name":"storage","cni-args":{"vlan":5}}]`), "network-attachment-definitions/vlan"},
		{"default", with(nil, nets, `[{"name":"storage","cni-args":{"ips":["10.0.0.1"]}}]`), "network-attachment-definitions/address"},
		{"default", with(nil, "v1.multus-cni.io/default-network", `[{"name":"storage","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"storage","ips":["10.0.0.1"]}]`), ""},
		{"storage", with(nil, nets, `[ {"name" : "storage", "ips":["10.0.0.1"], "default-route":["10.0.0.1"]}, {"name":"other"} ]`), ""},
		{"storage", with(nil, nets, `[{"name":"storage","ips":["10.0.0.1"],"portMappings":[{"hostPort":8080}]}]`), "network-attachment-definitions/port"},
		{"storage", with(nil, nets, `[{"name":"storage","deviceID":"0000:03:02.0"}]`), "network-attachment-definitions/device"},
		{"storage", with(nil, nets, `[{"name":"storage","cni-args":{"ips":["10.0.0.1"],"sysctl":{}}}]`), "network-attachment-definitions/args"},
		{"storage", with(nil, nets, `[{"name":"storage","namespace":"`+s.ns+`","ips":["10.0.0.1"]}]`), ""},
		{"storage", with(nil, nets, `[{"name":"other","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"storage","namespace":"elsewhere","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"storage","ips":["10.0.0.1"]},{"name":"other","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, "v1.multus-cni.io/default-network", `[{"name":"storage","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		// What tries to look like less than it is.
		{"storage", with(nil, nets, `[{"name":"other","\u0069ps":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"other","IPS":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"other","ips":["10.0.0.1"],"cni-args":{"a":{"b":{"c":{"name":"storage"}}}}}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"other","x":"}, {","ips":["10.0.0.1"],"y":"{\"name\":\"storage\""}]`), "network-attachment-definitions/address"},
		{"storage", with(nil, nets, `[{"name":"other","x":"},{name:storage","ips":["10.0.0.1"]}]`), "network-attachment-definitions/address"},
		{"all", with(nil, nets, `[{"name":"other","\u0069ps":["10.0.0.1"],"mac":"02:00:00:00:00:01"}]`), ""},
	} {
		t.Run(fmt.Sprint(c.account, c.ask), func(t *testing.T) {
			judge(t, s.create("asks", c.account, c.ask), c.refused)
		})
	}
}

// judge compares an outcome with what must be refused, by whom.
func judge(t *testing.T, err error, refused string) {
	t.Helper()
	if refused == "" {
		require.NoError(t, err)
		return
	}
	require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "ValidatingAdmissionPolicy 'fairlead-")
	require.ErrorContains(t, err, refused)
}

// TestManagersAskForOthers: a controller, and whoever may do all.
func TestManagersAskForOthers(t *testing.T) {
	s := newSite(t)
	s.tenant = s.client(s.User("controller"))
	require.NoError(t, s.create("asks", "default", map[string]string{"ovn.kubernetes.io/ip_address": "10.0.0.1"}))
	require.NoError(t, s.annotate(s.tenant, "", map[string]any{"ovn.kubernetes.io/ip_address": "10.0.0.9", "ovn.kubernetes.io/allocated": "true"}))
	require.NoError(t, s.annotate(s.root, "status", map[string]any{"ovn.kubernetes.io/ip_address": nil}))
}

// TestAddressesOutsideLater: nor does a pod get an address outside once it is there, if its
// account may not have one; somebody who may give them gives it.
func TestAddressesOutsideLater(t *testing.T) {
	s := newSite(t)
	eip := map[string]any{"ovn.kubernetes.io/eip": "192.0.2.50"}
	judge(t, s.annotate(s.tenant, "", eip), "subnets/outside")
	judge(t, s.annotate(s.tenant, "status", eip), "subnets/outside")
	require.NoError(t, s.annotate(s.tenant, "", map[string]any{"else": "x"}))
	s.tenant = s.client(s.User("controller"))
	require.NoError(t, s.annotate(s.tenant, "", eip))
}

// TestNobodySaysForTheController: an agent takes for given what these annotations say.
// Neither who may choose an address nor who may do all makes a pod with them, and nobody
// but the controller changes what a pod was given while it waits for its node.
func TestNobodySaysForTheController(t *testing.T) {
	s := newSite(t)
	s.ns = metav1.NamespaceSystem // which the policies about requests leave alone
	const given, uplink = "ovn.kubernetes.io/", "uplink.prod.kubernetes.io/"
	tenant := s.tenant
	for _, s.tenant = range []kubernetes.Interface{tenant, s.root} {
		for _, key := range []string{given + "allocated", uplink + "allocated", "storage.prod.ovn.net1.kubernetes.io/routed", uplink + "declared"} {
			judge(t, s.create("asks", "all", map[string]string{key: "true"}), key+" of a new pod: only the controller that gives addresses writes them")
		}
		require.NoError(t, s.create("asks", "all", map[string]string{given + "ip_address": "10.0.0.1"}), "a request is none of it")
	}

	controller := s.client(s.User("controller"))
	s.pod("waits", "", nil)
	change := func(as kubernetes.Interface, notes map[string]any) error {
		return patch(t.Context(), as, s.ns, "waits", "", map[string]any{"metadata": map[string]any{"annotations": notes}})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		given + "allocated": "true", given + "ip_address": "10.0.0.5", uplink + "allocated": "true", uplink + "ip_address": "10.77.0.5",
	}}})
	require.NoError(t, err)
	_, err = controller.CoreV1().Pods(s.ns).Patch(t.Context(), "waits", types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(t, err)
	for key, value := range map[string]any{
		given + "ip_address": "10.0.0.6", given + "mac_address": "02:00:00:00:00:01", given + "allocated": nil, given + "routed": "true", uplink + "declared": "prod/other@net1",
		uplink + "ip_address": "10.77.0.6", uplink + "ip_address.net1": "10.77.0.6", uplink + "logical_switch": "other",
		"uplink.prod.net1.kubernetes.io/ip_address": "10.77.0.6", "uplink.prod.ovn.kubernetes.io/ip_address": "10.77.0.6",
	} {
		judge(t, change(tenant, map[string]any{key: value}), key+" cannot be changed")
	}
	require.NoError(t, change(tenant, map[string]any{"other": "y"}))
	require.NoError(t, change(controller, map[string]any{uplink + "ip_address": "10.77.0.6"}))
}

// TestWhatWasAskedStays: on pods, pods/status and pods/binding.
func TestWhatWasAskedStays(t *testing.T) {
	s := newSite(t)
	const ip = "ovn.kubernetes.io/ip_address"
	for _, c := range []struct {
		sub     string
		change  map[string]any
		refused string
	}{
		{"", map[string]any{"other": "y", "kubernetes.io/ingress-bandwidth": "1M"}, ""},
		{"", map[string]any{ip: "10.0.0.1"}, ""}, // as it is
		{"", map[string]any{ip: "10.0.0.2"}, ip + " cannot be changed"},
		{"", map[string]any{ip: nil}, ip + " cannot be changed"},
		{"status", map[string]any{ip: "10.0.0.2"}, ip + " cannot be changed"},
		{"status", map[string]any{ip: nil}, ip + " cannot be changed"},
		{"", map[string]any{"ovn.kubernetes.io/egress_rate": "5"}, "egress_rate cannot be changed"},
		{"", map[string]any{"storage.prod.ovn.kubernetes.io/mac_address": "02:00:00:00:00:01"}, "mac_address cannot be changed"},
		{"", map[string]any{"ovn.kubernetes.io/allocated": "true"}, "allocated cannot be changed"},
		// Networks follow the annotation of a running pod, with the same rights.
		{"", map[string]any{"k8s.v1.cni.cncf.io/networks": "storage,other"}, ""},
		{"", map[string]any{"k8s.v1.cni.cncf.io/networks": `[{"name":"other","ips":["10.1.0.1"]}]`}, "network-attachment-definitions/address"},
		{"status", map[string]any{"k8s.v1.cni.cncf.io/networks": `[{"name":"other","mac":"02:00:00:00:00:01"}]`}, "network-attachment-definitions/mac"},
	} {
		t.Run(fmt.Sprint(c.sub, c.change), func(t *testing.T) {
			judge(t, s.annotate(s.tenant, c.sub, c.change), c.refused)
		})
	}
	bind := func(annotations map[string]string) error {
		b := &core.Binding{ObjectMeta: metav1.ObjectMeta{Name: "there", Annotations: annotations}, Target: core.ObjectReference{Kind: "Node", Name: "n"}}
		return s.tenant.CoreV1().Pods(s.ns).Bind(t.Context(), b, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	judge(t, bind(map[string]string{ip: "10.0.0.2"}), ip) // whichever policy is asked first
	judge(t, bind(map[string]string{networksKey: `[{"name":"storage","ips":["10.1.0.9"]}]`}), networksKey+" cannot be changed")
	judge(t, bind(map[string]string{insteadKey: "storage"}), insteadKey+" cannot be changed")
	judge(t, bind(map[string]string{"other": "z"}), "")
}

// TestMirrorsOfStaticPods: kubelet shows what runs already.
func TestMirrorsOfStaticPods(t *testing.T) {
	s := newSite(t)
	node := "n-" + s.ns
	controller := true
	n, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	require.NoError(t, err)
	mirror := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "static",
			Annotations:     map[string]string{"kubernetes.io/config.mirror": "x", "ovn.kubernetes.io/ip_address": "10.0.0.1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID, Controller: &controller}},
		},
		Spec: core.PodSpec{NodeName: node, Containers: []core.Container{{Name: "c", Image: "none"}}},
	}
	kubelet := s.client(s.User("system:node:"+node, "system:nodes"))
	_, err = kubelet.CoreV1().Pods(s.ns).Create(t.Context(), mirror, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.tenant.CoreV1().Pods(s.ns).Create(t.Context(), mirror, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.Error(t, err, "a tenant's mirror")
}

// TestDefaultsWarn: the defaults let a pod through that asks, and say so; what is the
// controller's to say they refuse, and addresses outside of the cluster.
func TestDefaultsWarn(t *testing.T) {
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("ovn.enabled=true"))
	require.NoError(t, v.Set("ovn.nb=tcp:192.0.2.1:6641"))
	objects, err := manifest.Render(v)
	require.NoError(t, err)
	refusing := 0
	for _, o := range objects {
		spec, _ := o["spec"].(map[string]any)
		switch {
		case o.Kind() != "ValidatingAdmissionPolicyBinding":
		case strings.HasPrefix(o.Name(), "fairlead-requests"):
			require.Equal(t, []any{"Warn", "Audit"}, spec["validationActions"])
		case o.Name() == "fairlead-given", o.Name() == "fairlead-outside":
			refusing++
			require.Equal(t, map[string]any{"policyName": o.Name(), "validationActions": []any{"Deny"}}, spec, "of all namespaces")
		}
	}
	require.Equal(t, 2, refusing)
}

// agentOf is the agent's client on a node, with the token that its pod would
// have.
func (s *site) agentOf(node string) kubernetes.Interface { return s.client(s.tokenOf(node)) }

// tokenOf is the login of the agent of a node.
func (s *site) tokenOf(node string) *rest.Config {
	s.t.Helper()
	name := "agent-" + node
	pod, err := s.root.CoreV1().Pods("kube-system").Create(s.t.Context(), &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       core.PodSpec{NodeName: node, ServiceAccountName: "fairlead-agent", Containers: []core.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	token, err := s.root.CoreV1().ServiceAccounts("kube-system").CreateToken(s.t.Context(), "fairlead-agent", &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	cfg := rest.AnonymousClientConfig(s.Admin())
	cfg.BearerToken = token.Status.Token
	return cfg
}

// TestAgentsAreConfined: the agent's token changes the status of its own node's
// pods, and of them what is Fairlead's.
func TestAgentsAreConfined(t *testing.T) {
	s := newSite(t)
	here, there := "here-"+s.ns, "there-"+s.ns
	for _, n := range []string{here, there} {
		_, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	s.pod("own", here, map[string]string{"note": "x", "ovn.kubernetes.io/ip_address": "10.0.0.1"})
	s.pod("foreign", there, nil)
	s.pod("unbound", "", nil)
	agent := s.agentOf(here)
	unbound := s.client(s.ServiceAccountConfig("kube-system", "fairlead-agent"))
	certified := s.client(s.User("system:fairlead:"+here, "system:fairlead"))
	s.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: certified},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead-agent},
		subjects: [{kind: Group, name: "system:fairlead", apiGroup: rbac.authorization.k8s.io}]}`)

	note := func(k, v string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{k: v}}}
	}
	status := note("k8s.v1.cni.cncf.io/network-status", "[]")
	fairlead := map[string]any{"status": map[string]any{"conditions": []map[string]any{{"type": "fairlead.io/NetworksAttached", "status": "False"}}}}
	require.Eventually(t, func() bool { return patch(t.Context(), certified, s.ns, "own", "status", status) == nil }, time.Minute, 50*time.Millisecond)
	for _, c := range []struct {
		name    string
		as      kubernetes.Interface
		pod     string
		body    any
		refused string
	}{
		{"its status", agent, "own", status, ""},
		{"its condition", agent, "own", fairlead, ""},
		{"with a certificate", certified, "own", status, ""},
		{"another node's pod", agent, "foreign", status, "may not change pods of node " + there},
		{"a pod of no node", agent, "unbound", status, "may not change pods of node"},
		{"another node's pod, with a certificate", certified, "foreign", status, "may not change pods of node " + there},
		{"a token that names no node", unbound, "own", status, "the agent of node (unknown)"},
		{"a token that names no node, a pod of none", unbound, "unbound", status, "the agent of node (unknown)"},
		{"a tenant's annotation", agent, "own", note("note", "y"), "no annotation but"},
		{"a new annotation", agent, "own", note("more", "y"), "no annotation but"},
		{"an address", agent, "own", note("ovn.kubernetes.io/ip_address", "10.0.0.7"), "denied request"}, // by two policies,
		{"networks", agent, "own", note("k8s.v1.cni.cncf.io/networks", "a"), "no annotation but"},
		{"labels", agent, "own", map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "x"}}}, "labels"},
		{"finalizers", agent, "own", map[string]any{"metadata": map[string]any{"finalizers": []string{"a.b/c"}}}, "finalizers"},
		{"a foreign condition", agent, "own", map[string]any{"status": map[string]any{"conditions": []map[string]any{{"type": "Ready", "status": "True"}}}}, "no condition but"},
		{"the pod's address", agent, "own", map[string]any{"status": map[string]any{"podIP": "10.0.0.9"}}, "nothing of a pod's status"},
		{"its phase", agent, "own", map[string]any{"status": map[string]any{"phase": "Succeeded"}}, "nothing of a pod's status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge(t, patch(t.Context(), c.as, s.ns, c.pod, "status", c.body), c.refused)
		})
	}
}
