package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// What a cluster must have for the suites: Services of both families, a way from
// pods to the API server and back, and a DNS.
const (
	servicesFor = "10.96.0.0/16,fd00:10:96::/112"
	dnsAddress  = "10.96.0.10"
	apiAddress  = "172.18.0.1" // the first machine's
	dns         = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: coredns, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
      errors
      health
      ready
      kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
      }
      cache 5
      loadbalance
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      containers:
      - name: coredns
        image: ` + image.CoreDNSName + `
        args: [-conf, /etc/coredns/Corefile]
        readinessProbe: {httpGet: {path: /ready, port: 8181}}
        volumeMounts: [{name: config, mountPath: /etc/coredns, readOnly: true}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns, kubernetes.io/name: CoreDNS}}
spec:
  clusterIP: ` + dnsAddress + `
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`
)

// byChance is a spec of otherwise that passes where the scheduler puts the pods that talk on
// one node.
const byChance = "[sig-network] Networking Granular Checks: Services should be able to handle large requests: udp"

// otherwise are the specs that do not pass here, each with its reason.
var otherwise = map[string]string{
	byChance: "Open vSwitch's userspace datapath does not " +
		"translate answers back that come in fragments by a tunnel (docs/cluster.md)",
	"[sig-network] Services should be rejected for evicted pods (no endpoints exist)":                                       "kubelet looks at no disk here, which is the machine's, and evicts nobody",
	"[sig-network] KubeProxy should set TCP CLOSE_WAIT timeout [Privileged]":                                                "the kernel's table of connections is the machine's: kube-proxy leaves its times alone",
	"[sig-network] Conntrack proxy implementation should not be vulnerable to the invalid conntrack state bug [Privileged]": "its image is not made here",
	"[sig-network] Services should fallback to local terminating endpoints when there are no ready endpoints with externalTrafficPolicy=Local": "kube-proxy " +
		"knows pods by their network (clusterCIDR), which is that of all nodes: those of other nodes too reach endpoints everywhere",
	"[sig-network] Services should support externalTrafficPolicy=Local for type=NodePort": "it asks from another node, which is answered, and is seen as " +
		"the node that led it: a pod answers a node by that node's own join port (docs/cluster.md)",
	"[sig-network] Services should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes": "skipped: it wants three nodes",
	"[sig-network] DNS should provide DNS for the cluster [Provider:GCE]":                                                   "skipped: this is no cloud",

	"[sig-network] Traffic Distribution should route traffic to an endpoint in the same zone when using PreferClose":                                                        threeZones,
	"[sig-network] Traffic Distribution should route traffic correctly between pods on multiple nodes when using PreferClose":                                               threeZones,
	"[sig-network] Traffic Distribution should route traffic to an endpoint in the same zone when using PreferSameZone":                                                     threeZones,
	"[sig-network] Traffic Distribution should route traffic correctly between pods on multiple nodes when using PreferSameZone":                                            threeZones,
	"[sig-network] Traffic Distribution should route traffic to an endpoint on the same node or fall back to same zone when using PreferSameNode":                           threeZones,
	"[sig-network] Traffic Distribution should route traffic to an endpoint on the same node when using PreferSameNode and fall back when the endpoint becomes unavailable": threeZones,
}

const threeZones = "skipped: it wants three zones"

// unrun are the specs that are not run for their kind, each with its reason.
var unrun = map[string]string{
	"[sig-network] DNS configMap nameserver Change stubDomain should be able to change stubDomain configuration [Slow] [Serial]":                    changesDNS,
	"[sig-network] DNS configMap nameserver Forward PTR lookup should forward PTR records lookup to upstream nameserver [Slow] [Serial]":            changesDNS,
	"[sig-network] DNS configMap nameserver Forward external name lookup should forward externalname lookup to upstream nameserver [Slow] [Serial]": changesDNS,

	"[sig-network] Networking Granular Checks: Services should update nodePort: http [Slow]": waitsLong,
	"[sig-network] Networking Granular Checks: Services should update nodePort: udp [Slow]":  waitsLong,

	"[sig-network] Networking should recreate its iptables rules if they are deleted [Disruptive]": bySSH,
	"[sig-network] Services should work after restarting kube-proxy [Disruptive]":                  bySSH,
	"[sig-network] Services should work after restarting apiserver [Disruptive]":                   bySSH,

	"[sig-network] Networking should allow creating a Pod with an SCTP HostPort [LinuxOnly] [Serial]":               noSCTP,
	"[sig-network] Services should allow creating a basic SCTP service with pod and endpoints [LinuxOnly] [Serial]": noSCTP,
}

// Reasons of unrun.
const (
	changesDNS = "it changes the DNS of all the others"
	waitsLong  = "it looks for minutes on end that what was closed stays closed; the specs of node ports that are run see one change"
	bySSH      = "it breaks a machine by SSH, which none here has; our own tests kill all of them"
	noSCTP     = "it asks whether the kernel's SCTP was loaded: the kernel is the machine's"
)

// spec is one result of the suites, as Ginkgo's JSON report has it.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.TrimSpace(strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " "))
}

// TestSuites runs Kubernetes' own end-to-end suites about networks, on two nodes as
// the chart makes them. FAIRLEAD_SUITES_FOCUS chooses specs.
func TestSuites(t *testing.T) {
	d := &demo{t: t, progress: newProgress(), nodes: 2, extra: extra{
		api:    []string{"--service-cluster-ip-range=" + servicesFor, "--advertise-address=" + apiAddress, "--endpoint-reconciler-type=lease"},
		images: []func(string) ([]byte, error){image.Agnhost, image.CoreDNS},
		dns:    dnsAddress,
	}}
	d.start()
	d.c.Publish(apiAddress, d.beds[0].NetnsPath())
	for i, m := range d.machines {
		d.c.Kubectl("label", "node", m.Name, fmt.Sprintf("topology.kubernetes.io/zone=zone-%d", i))
		kube.StartProxy(t, d.c, m.Node, m.Name, "--proxy-mode=nftables", "--cluster-cidr="+podCIDR+",fd00:10:16::/112")
	}
	d.c.Apply(dns)
	d.c.Kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")

	focus := os.Getenv("FAIRLEAD_SUITES_FOCUS")
	judge(t, d.suites(focus), focus == "")
}

// suites runs them, or the specs that match focus, and gives the report's file.
func (d *demo) suites(focus string) (report string) {
	t := d.t
	t.Helper()
	programs, err := kube.Programs()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(programs, "e2e.test"), "run: make suites")
	report = filepath.Join(d.c.Dir(), "suites.json")
	if focus == "" {
		focus = `\[sig-network\]`
	}
	args := []string{"--procs=" + strconv.Itoa(atOnce), "--timeout=12h", "--seed=1", "--no-color", "--json-report=" + report,
		"--skip=" + notRun, "--focus=" + focus, filepath.Join(programs, "e2e.test"), "--",
		"-kubeconfig=" + d.c.AdminKubeconfig(), "-kubectl-path=" + filepath.Join(programs, "kubectl"), "-provider=skeleton",
		"-num-nodes=2", "-dump-logs-on-failure=false", "-disable-log-dump"}
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "ginkgo"), args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // a dot for each spec, and all that one which failed has said
	_ = cmd.Run()                                 // what has failed is in the report
	return report
}

// atOnce is how many specs run beside each other: they wait more than they work.
const atOnce = 3

// otherThings is what specs have in their names that are about something else: load
// balancers and Ingress of a cloud, and features that are off. SCTP is not in this kernel.
const otherThings = `\[Feature:(LoadBalancer|Ingress|SCTPConnectivity|Networking-|PerformanceDNS|KubeProxyNFAcct|HostAccess|OffByDefault)|\[Alpha\]`

// notRun has what is not run: these, and what breaks a node or takes a cluster for
// itself, which unrun names one by one.
const notRun = otherThings + `|\[(Disruptive|Slow|Serial)\]`

// judge wants each spec to pass but those in otherwise, and these not to.
func judge(t *testing.T, report string, whole bool) {
	t.Helper()
	b, err := os.ReadFile(report)
	require.NoError(t, err)
	var suites []struct{ SpecReports []spec }
	require.NoError(t, json.Unmarshal(b, &suites))
	for _, s := range suites[0].SpecReports {
		if s.RunTime != 0 {
			t.Logf("%s %s: %s", s.State, s.RunTime.Round(time.Second), s.name())
		}
	}
	passed, wrong := verdict(suites[0].SpecReports, whole)
	t.Logf("%d specs pass, %d are otherwise than they should be", passed, len(wrong))
	require.Empty(t, wrong)
	require.NotZero(t, passed)
}

var aboutOthers = regexp.MustCompile(otherThings)

// verdict counts the specs that pass, and says what is otherwise than it should be. Of
// the whole, a spec that is not run must be one that unrun has, or be about other things.
func verdict(specs []spec, whole bool) (passed int, wrong []string) {
	seen := map[string]bool{}
	for _, s := range specs {
		name := s.name()
		_, known := otherwise[name]
		_, left := unrun[name]
		seen[name] = true
		switch {
		case s.LeafNodeType != "It" && s.State == "passed":
		case s.State == "skipped" && s.RunTime == 0: // not chosen
			if whole && !left && strings.HasPrefix(name, "[sig-network] ") && !aboutOthers.MatchString(name) {
				wrong = append(wrong, name+": is not run, and nobody says why")
			}
		case left:
			wrong = append(wrong, name+": is run, and is said not to be: "+unrun[name])
		case s.State == "passed" && (!known || name == byChance):
			passed++
		case s.State == "passed":
			wrong = append(wrong, name+": passes, and is said not to: "+otherwise[name])
		case !known:
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", name, s.State, s.Failure.Message))
		}
	}
	for _, list := range []map[string]string{otherwise, unrun} {
		for name := range list {
			if whole && !seen[name] {
				wrong = append(wrong, name+": there is no such spec")
			}
		}
	}
	return passed, wrong
}

// TestVerdict: each spec that is not run, does not pass, or is not there, is named.
func TestVerdict(t *testing.T) {
	t.Parallel()
	var all []spec
	for name := range otherwise {
		all = append(all, spec{LeafNodeText: name, LeafNodeType: "It", State: "skipped", RunTime: 1})
	}
	for name := range unrun {
		require.Regexp(t, notRun, name)
		all = append(all, spec{LeafNodeText: name, LeafNodeType: "It", State: "skipped"})
	}
	it := func(name, state string, took time.Duration) spec {
		return spec{LeafNodeText: "[sig-network] " + name, LeafNodeType: "It", State: state, RunTime: took}
	}
	all = append(all, it("good", "passed", 1), it("balancer [Feature:LoadBalancer]", "skipped", 0))
	passed, wrong := verdict(all, true)
	require.Empty(t, wrong)
	require.Equal(t, 1, passed)
	lucky, known := it("", "passed", 1), it("", "passed", 1)
	lucky.LeafNodeText, known.LeafNodeText = byChance, "[sig-network] Services should be rejected for evicted pods (no endpoints exist)"
	passed, wrong = verdict([]spec{lucky, known}, false)
	require.Equal(t, 1, passed)
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "passes, and is said not to")
	for want, s := range map[string]spec{
		"[sig-network] new [Slow]: is not run, and nobody says why":    it("new [Slow]", "skipped", 0),
		"[sig-network] Traffic Distribution of three zones: skipped: ": it("Traffic Distribution of three zones", "skipped", 1),
		"[sig-network] bad: failed: ":                                  it("bad", "failed", 1),
	} {
		_, wrong := verdict(append(slices.Clone(all), s), true)
		require.Equal(t, []string{want}, wrong)
	}
	_, wrong = verdict(all[1:], true)
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "there is no such spec")
	_, wrong = verdict([]spec{it("new [Slow]", "skipped", 0)}, false)
	require.Empty(t, wrong)
}
