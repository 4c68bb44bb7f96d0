package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = root + "/deploy/charts/fairlead"
	golden   = "testdata/default.yaml"
)

// object is one rendered object, by what makes it unique.
type object = map[string]any

// rendered gives the objects that Helm makes of the chart and a file of values,
// CRDs included.
func rendered(t *testing.T, over string) map[string]object {
	t.Helper()
	c, err := loader.Load(chartDir)
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	values, err := chartutil.ReadValues([]byte(over))
	require.NoError(t, err)
	out := map[string]object{}
	for _, crd := range c.CRDObjects() {
		read(t, out, crd.Filename, string(crd.File.Data))
	}
	for name, text := range templates(t, c, values) {
		read(t, out, name, text)
	}
	return out
}

func templates(t *testing.T, c *chart.Chart, values map[string]any) map[string]string {
	t.Helper()
	// Release and Capabilities as `helm install` would give them: the objects
	// must not depend on either.
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "any", Namespace: "any"}, chartutil.DefaultCapabilities)
	require.NoError(t, err)
	files, err := engine.Engine{Strict: true}.Render(c, all)
	require.NoError(t, err)
	return files
}

// read adds the objects of a stream of documents.
func read(t *testing.T, to map[string]object, name, text string) {
	t.Helper()
	if filepath.Ext(name) != ".yaml" {
		return
	}
	for _, doc := range strings.Split("\n"+text, "\n---") {
		o := object{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &o), name)
		if len(o) == 0 {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		key := strings.Join([]string{o["kind"].(string), str(meta["namespace"]), meta["name"].(string)}, " ")
		require.NotContains(t, to, key, "twice")
		to[key] = o
	}
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// printed gives what `fairlead install --dry-run` prints for a file of values,
// and its text.
func printed(t *testing.T, over string) (map[string]object, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(over), 0o600))
	text := string(command(t, root, "go", "run", "./cmd/fairlead", "install", "--dry-run", "-o", "yaml", "-f", file))
	out := map[string]object{}
	read(t, out, "printed.yaml", text)
	return out, text
}

// TestInstallPrintsWhatHelmRenders is the promise that both ways of installing
// are one.
func TestInstallPrintsWhatHelmRenders(t *testing.T) {
	for name, values := range map[string]string{
		"defaults": "",
		"everything changed": `
namespace: net
image: {repository: registry.local/fl, tag: v9, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
flags: {cni-master: auto, mtu: 9000, kubelet-root: /srv/kubelet}
config: {namespaceIsolation: true, globalNamespaces: "a,b<c>"}
cni: {types: [fairlead, multus], replace: true}
ovn: {enabled: true, joinCIDR: 100.65.0.0/16, podCIDR: 10.40.0.0/16, serviceCIDR: 10.96.0.0/12, image: registry.local/ctl, ovnImage: registry.local/ovn, replicas: 3, central: {members: {a.b: 10.0.0.1, c: "fd00::1", d: 10.0.0.2}}}
openvswitch: {enabled: true}
paths: {openvswitchDB: /srv/ovs}
http: {host: 0.0.0.0, port: 9999}
kubernetesService: {host: 10.0.0.1, port: "6443"}
serviceAccount: {annotations: {a: b}}
rbac: {nodeCertificates: true}
extraCapabilities: [DAC_OVERRIDE]
podLabels: {x: "y"}
podAnnotations: {x: "y"}
nodeSelector: {kubernetes.io/os: null, pool: net}
updateStrategy: {type: OnDelete, rollingUpdate: null}
affinity: {nodeAffinity: {}}
extraEnv: [{name: GOGC, value: "50"}]
extraVolumes: [{name: dhcp, hostPath: {path: /run/cni}}]
extraVolumeMounts: [{name: dhcp, mountPath: /run/cni}]
`,
		"without policies": `{policies: {requests: {enabled: false}, agent: {enabled: false}}, rbac: {create: false}, seLinuxType: "", ovn: {enabled: true, nb: "ssl:10.0.0.1:6641", remote: "ssl:10.0.0.1:6642", chassis: {enabled: false}}}`,
		"strict":           `{policies: {requests: {actions: [Deny], exemptNamespaces: []}}, rbac: {resourceSlices: false}}`,
	} {
		t.Run(name, func(t *testing.T) {
			want := rendered(t, values)
			have, _ := printed(t, values)
			maps.DeleteFunc(have, func(key string, _ object) bool { // which Helm cannot leave out where there is no OVN
				_, common := want[key]
				return strings.HasPrefix(key, "CustomResourceDefinition ") && !common
			})
			for key := range want {
				require.Equal(t, asYAML(t, want[key]), asYAML(t, have[key]), key)
			}
			require.Len(t, have, len(want))
		})
	}
}

func asYAML(t *testing.T, o object) string {
	t.Helper()
	b, err := yaml.Marshal(o)
	require.NoError(t, err)
	return string(b)
}

// TestDefaultObjects compares with a file that a reviewer can read: a change of
// the chart shows what it does to a cluster.
func TestDefaultObjects(t *testing.T) {
	_, text := printed(t, "")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go -C test/chart test ./... -update")
}

// TestDaemonSetIsNoMoreThanItMust reads the security-relevant parts.
func TestDaemonSetIsNoMoreThanItMust(t *testing.T) {
	ds := rendered(t, "")["DaemonSet kube-system fairlead-agent"]
	spec := at(ds, "spec", "template", "spec")
	require.NotContains(t, spec, "hostPID")
	require.NotContains(t, spec, "hostIPC")
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range spec[list].([]any) {
			sc := at(c.(map[string]any), "securityContext")
			require.NotContains(t, sc, "privileged")
			require.Equal(t, true, sc["readOnlyRootFilesystem"])
			require.Equal(t, false, sc["allowPrivilegeEscalation"])
			require.Equal(t, []any{"ALL"}, at(sc, "capabilities")["drop"])
			require.NotContains(t, at(c.(map[string]any), "resources"), "limits", "delegates run in this cgroup")
		}
	}
	agent := spec["containers"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}, at(agent, "securityContext", "capabilities")["add"])
	for _, m := range agent["volumeMounts"].([]any) {
		if m := m.(map[string]any); m["name"] == "netns" {
			require.Equal(t, "HostToContainer", m["mountPropagation"])
		}
	}
}

// TestControllerIsNoMoreThanItMust: it asks two servers, and has nothing of its
// node but the network, in which it may send echo requests.
func TestControllerIsNoMoreThanItMust(t *testing.T) {
	made := rendered(t, `ovn: {enabled: true, nb: "ssl:10.0.0.1:6641"}`)
	spec := at(made["Deployment kube-system fairlead-controller"], "spec", "template", "spec")
	for _, key := range []string{"hostPID", "hostIPC", "volumes", "initContainers"} {
		require.NotContains(t, spec, key)
	}
	c := spec["containers"].([]any)[0].(map[string]any)
	sc := at(c, "securityContext")
	require.EqualValues(t, 0, sc["runAsUser"], "others have no capability")
	require.Equal(t, true, sc["readOnlyRootFilesystem"])
	require.Equal(t, false, sc["allowPrivilegeEscalation"])
	require.Equal(t, map[string]any{"drop": []any{"ALL"}, "add": []any{"NET_RAW"}}, sc["capabilities"])
	require.NotContains(t, c, "volumeMounts")
	for _, role := range []string{"ClusterRole  fairlead-controller", "Role kube-system fairlead-controller"} {
		require.NotContains(t, asYAML(t, made[role]), "*")
		for _, rule := range made[role]["rules"].([]any) {
			if rule := rule.(map[string]any); slices.Contains(rule["resources"].([]any), any("secrets")) {
				require.Equal(t, "Role kube-system fairlead-controller", role)
				require.Equal(t, []any{"fairlead-ca"}, rule["resourceNames"], "the one Secret of its CAs")
			}
		}
	}
}

// TestSignalsEndOpenVSwitch: programs of Open vSwitch and OVN that are a container's
// own are not process 1 of its namespace.
func TestSignalsEndOpenVSwitch(t *testing.T) {
	made := rendered(t, `{openvswitch: {enabled: true}, ovn: {enabled: true, nb: "ssl:10.0.0.1:6641"}}`)
	for _, name := range []string{"fairlead-chassis", "fairlead-openvswitch"} {
		require.Equal(t, true, at(made["DaemonSet kube-system "+name], "spec", "template", "spec")["shareProcessNamespace"], name)
	}
}

// TestOpenVSwitchFreesNICs: the chart's Open vSwitch does before it starts what the drop-in
// does for that of a machine, which tests of a reboot run.
func TestOpenVSwitchFreesNICs(t *testing.T) {
	dropIn, err := os.ReadFile("../../deploy/systemd/ovs-vswitchd.service.d/fairlead.conf")
	require.NoError(t, err)
	_, script, _ := strings.Cut(string(dropIn), "ExecStartPre=-/bin/sh -c '")
	script, _, ok := strings.Cut(script, "'\n")
	require.True(t, ok)
	made := rendered(t, `{openvswitch: {enabled: true}}`)["DaemonSet kube-system fairlead-openvswitch"]
	for _, c := range at(made, "spec", "template", "spec")["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == "ovs-vswitchd" {
			text := c["command"].([]any)[2].(string)
			text = strings.NewReplacer("; do\n", "; do ", "\ndone", "; done").Replace(text)
			require.Contains(t, strings.Join(strings.Fields(text), " "), strings.ReplaceAll(script, "$$", "$")+" exec ovs-vswitchd ")
			return
		}
	}
	require.Fail(t, "no ovs-vswitchd")
}

func at(o map[string]any, path ...string) map[string]any {
	for _, p := range path {
		o, _ = o[p].(map[string]any)
	}
	return o
}

// TestNoLookup: a chart that asks the cluster renders differently in every tool.
func TestNoLookup(t *testing.T) {
	c, err := loader.Load(chartDir)
	require.NoError(t, err)
	for _, f := range c.Templates {
		require.NotContains(t, string(f.Data), "lookup", f.Name)
		require.NotContains(t, string(f.Data), ".Capabilities", f.Name)
		require.NotContains(t, string(f.Data), ".Release", f.Name)
	}
}

// TestEveryValueIsDocumented compares values.yaml with the table of the chart's
// README, and wants a comment on each value.
func TestEveryValueIsDocumented(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/values.yaml")
	require.NoError(t, err)
	readme, err := os.ReadFile(chartDir + "/README.md")
	require.NoError(t, err)
	table := valueTable(t, string(text))
	if *update {
		head, _, _ := strings.Cut(string(readme), tableHead)
		readme = []byte(head + table)
		require.NoError(t, os.WriteFile(chartDir+"/README.md", readme, 0o644))
	}
	require.True(t, strings.HasSuffix(string(readme), table), "the table of values is not values.yaml's: go -C test/chart test ./... -update")
}

const tableHead = "| value | default | what it is |\n"

// valueTable makes the README's table: a value, its default, the comment's first
// sentence. A key without comment fails, but for one whose parts are documented.
func valueTable(t *testing.T, text string) string {
	t.Helper()
	out := []string{strings.TrimSuffix(tableHead, "\n"), "|---|---|---|"}
	var path []string // of the enclosing keys
	comment := ""
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		switch {
		case trimmed == "":
			comment = ""
			continue
		case strings.HasPrefix(trimmed, "#"):
			if comment == "" {
				comment = strings.TrimPrefix(trimmed, "# ")
			}
			continue
		case strings.HasPrefix(trimmed, "- "), depth > len(path):
			continue // inside a default that is a structure
		}
		key, value, _ := strings.Cut(trimmed, ":")
		path = append(path[:depth:depth], key)
		name := strings.Join(path, ".")
		next := ""
		if i+1 < len(lines) {
			next = lines[i+1]
		}
		group := strings.TrimSpace(value) == "" && strings.HasPrefix(strings.TrimSpace(next), "#")
		if comment == "" && !group {
			if !slices.Contains([]string{"resources", "updateStrategy", "nodeSelector", "tolerations"}, path[0]) {
				t.Errorf("value %s has no comment", name)
			}
			continue
		}
		if comment != "" {
			out = append(out, "| `"+name+"` | "+shown(value)+" | "+comment+" |")
		}
		comment = ""
	}
	return strings.Join(out, "\n") + "\n"
}

// shown is a default as it stands in the table.
func shown(value string) string {
	if v := strings.TrimSpace(value); v != "" {
		return "`" + v + "`"
	}
	return "see values.yaml"
}
