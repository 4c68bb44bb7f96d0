package machine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/local"
)

const objects = `
{apiVersion: v1, kind: Namespace, metadata: {name: web, labels: {team: a}}}
---
{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: web}, spec: {cidrBlock: 10.16.0.0/16, default: true, gatewayNode: n9}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: web, labels: {app: x}, annotations: {ovn.kubernetes.io/logical_switch: web}}
spec: {containers: [{name: c, ports: [{name: http, containerPort: 8080}, {name: dns, containerPort: 53, protocol: UDP}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: svc, namespace: web}
spec: {clusterIP: 10.96.0.1, selector: {app: x}, ports: [{name: w, port: 80, targetPort: http}, {name: p, port: 81}, {name: none, port: 82, targetPort: dns}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: more, namespace: web, labels: {kubernetes.io/service-name: svc}}
addressType: IPv4
ports: [{name: w, port: 99}]
endpoints: [{addresses: [192.0.2.9]}]
`

func machineOf(t *testing.T, text string) (*local.Machine, *world, object.World) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
	m, err := local.OpenMachine(dir, "n1", log)
	require.NoError(t, err)
	w := newWorld(m, log)
	return m, w, w.World()
}

func request(container, pod, uid string) core.Request {
	return core.Request{Key: core.Key{Container: container, IfName: "eth0"}, Pod: core.Pod{Namespace: "web", Name: pod, UID: uid}}
}

// TestPods: a pod is there from its ADD until the DEL of its last sandbox, by the
// name of its file or the one that a node loop gives it; another UID is another pod.
func TestPods(t *testing.T) {
	m, _, w := machineOf(t, objects)
	require.Empty(t, w.Pods.List())
	m.Announce(request("c1", "a", ""))
	m.Announce(request("c2", "a", ""))
	p, ok := w.Pods.Get("web", "a")
	require.True(t, ok)
	require.Equal(t, object.Pod{
		Pod: core.Pod{Namespace: "web", Name: "a", UID: "of web/a"}, Node: "n1", Labels: map[string]string{"app": "x"},
		Annotations: map[string]string{"ovn.kubernetes.io/logical_switch": "web"},
		Ports:       []logical.ContainerPort{{Name: "http", Protocol: "TCP", Number: 8080}, {Name: "dns", Protocol: "UDP", Number: 53}},
	}, p)
	m.Leave("c1", p.Pod)
	require.Len(t, w.Pods.List(), 1)
	m.Leave("c2", p.Pod)
	require.Empty(t, w.Pods.List())

	req := request("c3", "a-n1", "u1")
	req.Conf.Annotations = map[string]string{"k": "v"}
	m.Announce(req)
	p, _ = w.Pods.Get("web", "a-n1")
	require.Equal(t, "u1", p.UID)
	require.Equal(t, map[string]string{"app": "x"}, p.Labels)
	require.Equal(t, map[string]string{"k": "v"}, p.Annotations)
	o := object.Object{Key: object.Key{Kind: object.KindPod, Namespace: "web", Name: "a-n1"}, UID: "u1"}
	require.NoError(t, w.Annotate(t.Context(), o, map[string]string{"x": "y"}))
	m.Announce(request("c4", "a-n1", "u2"))
	require.ErrorIs(t, w.Annotate(t.Context(), o, map[string]string{"x": "z"}), core.ErrNotFound)
	p, _ = w.Pods.Get("web", "a-n1")
	require.Empty(t, p.Annotations, "those of the pod before are not this one's")
	m.Leave("c3", p.Pod)
	require.Len(t, w.Pods.List(), 1, "the DEL of the pod before is not this one's")
}

// TestEndpoints: pods that a selector fits are endpoints once they have an address,
// at the ports that they have; EndpointSlices count too.
func TestEndpoints(t *testing.T) {
	m, _, w := machineOf(t, objects)
	require.Equal(t, "192.0.2.9", w.Endpoints("web", "svc")[0].All[0].IPs[0].String())
	m.Announce(request("c1", "a", "u"))
	require.Equal(t, []logical.Endpoints{w.Endpoints("web", "svc")[0], {Namespace: "web", Service: "svc"}}, w.Endpoints("web", "svc"))
	o := object.Object{Key: object.Key{Kind: object.KindPod, Namespace: "web", Name: "a"}, UID: "u"}
	require.NoError(t, w.Annotate(t.Context(), o, map[string]string{
		"ovn.kubernetes.io/ip_address": "10.16.0.2,fd00::2", "ovn.kubernetes.io/routed": "true",
	}))
	all := w.Endpoints("web", "svc")
	require.Equal(t, []logical.ServicePort{{Name: "w", Protocol: "TCP", Port: 8080}, {Name: "p", Protocol: "TCP", Port: 81}}, all[1].Ports)
	require.Equal(t, "10.16.0.2", all[1].All[0].IPs[0].String())
}

func must[T any](v T, _ bool) T { return v }

// TestNews: the controller begins when the pods of before are known, and hears of
// Services whose pods change, and of a namespace with its first pod.
func TestNews(t *testing.T) {
	m, _, w := machineOf(t, objects)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, w.Follow(ctx, func(object.Key) {}), context.Canceled)
	m.Known()
	var heard []string
	require.NoError(t, w.Follow(t.Context(), func(k object.Key) { heard = append(heard, k.String()) }))
	m.Announce(request("c1", "a", ""))
	m.Announce(request("c2", "b", ""))
	require.Equal(t, []string{"Pod web/a", "Namespace web", "Service web/svc", "Pod web/b", "Service web/svc"}, heard)
	ns, ok := w.Namespaces.Get("", "web")
	require.True(t, ok)
	require.Equal(t, map[string]string{"team": "a", "kubernetes.io/metadata.name": "web"}, ns.Labels)
	ns, _ = w.Namespaces.Get("", "other")
	require.Equal(t, map[string]string{"kubernetes.io/metadata.name": "other"}, ns.Labels)
}

// TestProblems: what the controller does not carry out stands with its file and
// line, as long as it holds.
func TestProblems(t *testing.T) {
	m, own, w := machineOf(t, objects)
	problems := func() (out []string) {
		for _, p := range m.Problems() {
			p.File = filepath.Base(p.File)
			out = append(out, p.String())
		}
		return out
	}
	require.Empty(t, problems())
	subnet := object.Object{Key: object.Key{Kind: object.KindSubnet, Name: "web"}}
	told := func(undone ...string) {
		require.NoError(t, w.SubnetStatus(t.Context(), subnet, v1.SubnetStatus{Conditions: status.Conditions(0, nil, undone)}))
	}
	told("spec.gatewayNode")
	require.Equal(t, []string{"a.yaml:4: Subnet web: not carried out: spec.gatewayNode"}, problems())
	require.NotEmpty(t, must(w.Subnets.Get("", "web")).Status.Conditions)
	told()
	require.Empty(t, problems())

	service := object.Object{Key: object.Key{Kind: object.KindService, Namespace: "web", Name: "svc"}}
	w.Warn(t.Context(), service, object.Event{Reason: "R", Message: "some"})
	require.Equal(t, []string{"a.yaml:11: Service web/svc: some"}, problems())
	own.well(service.Key)
	require.Empty(t, problems())
	w.Warn(t.Context(), object.Object{Key: object.Key{Kind: object.KindPod, Namespace: "web", Name: "a"}}, object.Event{Message: "late"})
	require.Empty(t, problems(), "the pod is gone")
}

// TestTheDefaultIsWithheld: while a Subnet is refused that is to be the default one,
// the built-in one does not take its place.
func TestTheDefaultIsWithheld(t *testing.T) {
	_, _, w := machineOf(t, "{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: web}, spec: {cidrBlock: nonsense, default: true}}")
	_, ok := w.Subnets.Get("", v1.DefaultSubnet)
	require.True(t, ok)
	_, _, w = machineOf(t, objects)
	_, ok = w.Subnets.Get("", v1.DefaultSubnet)
	require.False(t, ok)
}
