package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

const servicesYAML = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: NS}
spec:
  sessionAffinity: ClientIP
  ports: [{name: a, port: 80, targetPort: web}, {name: b, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: here, namespace: NS}
spec: {internalTrafficPolicy: Local, sessionAffinity: ClientIP, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: none, namespace: NS}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: away, namespace: NS}
spec: {type: ExternalName, externalName: example.org, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: NS, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: a, port: 8080}, {name: b, port: 1053, protocol: UDP}]
endpoints:
- {addresses: [10.16.0.2]}
- {addresses: [10.16.0.3], conditions: {ready: false, serving: true, terminating: true}}
`

// TestServicesAreBalanced: on a real API server the rows of Services follow
// them and their EndpointSlices; a field that is not carried out is an event of
// the Service.
func TestServicesAreBalanced(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	ns, db := c.Namespace(), bed.NewNB(t, testbed.Bare(t))
	text := strings.ReplaceAll(servicesYAML, "NS", ns)
	ip := ""
	for _, o := range c.Apply(text) {
		if o.GetKind() == "Service" && o.GetName() == "web" {
			ip = c.Kubectl("get", "service", "-n", ns, "web", "-o", "jsonpath={.spec.clusterIP}")
		}
	}
	serve(t, c, db)
	has := func(want, args string) {
		t.Helper()
		got := ""
		require.Eventually(t, func() bool {
			got = db.Nbctl(append([]string{"--bare", "--no-headings"}, strings.Fields(args)...)...)
			return got == want
		}, patience, tick, "wanted %q", want)
	}
	vips := "--columns=vips find Load_Balancer name=" + ns + "/web/"
	has(ip+":80=10.16.0.2:8080", vips+"tcp")
	has(ip+":53=10.16.0.2:1053", vips+"udp")
	require.Equal(t, "10800", db.Get("Load_Balancer", ns+"/web/tcp", "options:affinity_timeout"))
	has(ns+"/here/tcp/ipv4", "--columns=name find Load_Balancer options:template=true external_ids:service="+ns+"/here")
	for _, name := range []string{"none", "away"} {
		has("", "--columns=name find Load_Balancer external_ids:service="+ns+"/"+name)
	}
	require.Eventually(t, func() bool {
		return strings.Contains(c.Kubectl("get", "events", "-n", ns, "--field-selector", "involvedObject.kind=Service,involvedObject.name=here",
			"-o", "jsonpath={range .items[*]}{.type} {.reason} {.message}{end}"), "Warning FieldsNotImplemented not carried out: spec.sessionAffinity: ClientIP (OVN has none with spec.internalTrafficPolicy: Local)")
	}, patience, tick)

	c.Apply(strings.ReplaceAll(text, "- {addresses: [10.16.0.2]}\n", ""))
	has(ip+":80=10.16.0.3:8080", vips+"tcp")
	c.Kubectl("delete", "endpointslice", "web-1", "-n", ns)
	has(ip+":80=", vips+"tcp")
	c.Kubectl("delete", "service", "web", "-n", ns)
	has("", vips+"tcp")
}
