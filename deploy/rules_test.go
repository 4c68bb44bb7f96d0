package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead/fairlead/internal/testbed/refusals"
)

// manifest is one object; kind is "KIND" or "KIND NAME".
func manifest(kind, name, spec string) string {
	kind, own, ok := strings.Cut(kind, " ")
	if ok {
		name = own
	}
	group := "kubeovn.io/v1"
	switch kind {
	case "AddressLease":
		group = "fairlead.io/v1"
	case "AddressLease/net":
		kind, group = "AddressLease", "net.fairlead.io/v1alpha1"
	case "PodNetwork", "NodeVFPolicy":
		group = "net.fairlead.io/v1alpha1"
	}
	return fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: %s}, spec: {%s}}`, group, kind, name, spec)
}

// TestRules: each bad object is refused, in words that name field and value, and
// the good one beside it is not.
func TestRules(t *testing.T) {
	t.Parallel()
	c := installed(t)
	unproven := rules(t)
	prove := func(kind, message string) {
		kind, _, _ = strings.Cut(strings.Replace(kind, "/net", "", 1), " ")
		for name, parts := range unproven {
			if strings.HasPrefix(name, kind+": ") && all(message, parts) {
				delete(unproven, name)
			}
		}
	}
	for n, r := range refusals.All() {
		err := c.TryApply(c.Admin(), manifest(r.Kind, fmt.Sprintf("bad-%d", n), r.Bad))
		require.Error(t, err, "%s: %s", r.Kind, r.Bad)
		for _, s := range r.Says {
			require.ErrorContains(t, err, s, "%s: %s", r.Kind, r.Bad)
		}
		require.NotContains(t, err.Error(), "rule evaluation error", r.Bad)
		prove(r.Kind, err.Error())
		if r.Good != "" {
			require.NoError(t, c.TryApply(c.Admin(), manifest(r.Kind, fmt.Sprintf("good-%d", n), r.Good)), "%s: %s", r.Kind, r.Good)
		}
	}
	for _, r := range changes {
		prove(r.kind, r.says)
	}
	require.Empty(t, unproven, "rules without a bad example here")
}

func all(message string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(message, p) {
			return false
		}
	}
	return true
}

var literal = regexp.MustCompile(`'[^']*'`)

// rules are the messages of all CEL rules, as "KIND: MESSAGE" with the words
// that a refusal by the rule must have.
func rules(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, pattern := range []string{"cluster/*.yaml", ChartDir + "/crds/*.io_*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			var crd map[string]any
			require.NoError(t, yaml.Unmarshal(text, &crd))
			kind := crd["spec"].(map[string]any)["names"].(map[string]any)["kind"].(string)
			collect(crd, func(r map[string]any) {
				if m, ok := r["message"].(string); ok {
					out[kind+": "+m] = []string{m}
					return
				}
				m := r["messageExpression"].(string)
				// What names no value stands in a branch that may not be taken.
				for _, l := range literal.FindAllString(m, -1) {
					if l = strings.Trim(l, "'"); l != "" && l != "none" && l != "ovn" {
						out[kind+": "+m] = append(out[kind+": "+m], l)
					}
				}
			})
		}
	}
	require.Greater(t, len(out), 30)
	return out
}

// collect finds x-kubernetes-validations at every depth.
func collect(v any, do func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if list, ok := value.([]any); ok && key == "x-kubernetes-validations" {
				for _, r := range list {
					do(r.(map[string]any))
				}
				continue
			}
			collect(value, do)
		}
	case []any:
		for _, e := range v {
			collect(e, do)
		}
	}
}

// lease is an AddressLease of a pod.
func lease(subnet, address string) string {
	return fmt.Sprintf(`subnet: %s, address: "%s", owner: {kind: Pod, namespace: a, name: web}`, subnet, address)
}

// agentLease is one that a node's agent has made.
func agentLease(what string, epoch int) string {
	return fmt.Sprintf(`domain: db, %s, owner: {namespace: a, pod: web, interface: net1}, holder: {sandbox: c1, node: n1, epoch: %d}`, what, epoch)
}

// changes are objects that are good by themselves and may not follow each other.
var changes = []struct{ kind, before, after, allowed, says string }{
	{"IPPool changing", `subnet: a, ips: [10.16.0.5]`, `subnet: b, ips: [10.16.0.5]`, `subnet: a, ips: [10.16.0.6]`, "subnet a cannot become b: make another IPPool"},
	{"AddressLease web.10.16.0.50", lease("web", "10.16.0.50"), lease("web", "10.16.0.51"), lease("web", "10.16.0.50") + ", node: n2", "address 10.16.0.50 cannot become 10.16.0.51: a lease is of one address"},
	{"AddressLease web.10.16.0.52", lease("web", "10.16.0.52"), lease("other", "10.16.0.52"), lease("web", "10.16.0.52"), "subnet web cannot become other: a lease is of one address"},
	{"AddressLease/net db.10.9.0.30", agentLease("address: 10.9.0.30", 7), agentLease("address: 10.9.0.30", 6), agentLease("address: 10.9.0.30", 8), "the holder's epoch grows"},
	{"Subnet in-use", `cidrBlock: 10.70.0.0/16`, `cidrBlock: 10.71.0.0/16`, `cidrBlock: 10.70.0.0/16, gateway: 10.70.0.9`, "cidrBlock 10.70.0.0/16 cannot become 10.71.0.0/16 while addresses of it are in use"},
	{"Subnet in-use-6", `cidrBlock: "fd70::/64"`, `gateway: ""`, `cidrBlock: "fd70::/64", mtu: 1400`, "cidrBlock fd70::/64 cannot become none while addresses of it are in use"},
	{"Subnet in-use-ovn", `cidrBlock: 10.72.0.0/16`, `cidrBlock: 10.72.0.0/16, provider: lan.prod`, `cidrBlock: 10.72.0.0/16, provider: ovn`, "provider ovn cannot become lan.prod while addresses of it are in use"},
	{"Subnet in-use-lan", `cidrBlock: "fd72::/64", provider: lan.prod`, `cidrBlock: "fd72::/64", provider: ""`, `cidrBlock: "fd72::/64", provider: lan.prod, mtu: 1400`, "provider lan.prod cannot become ovn while addresses of it are in use"},
	{"Subnet in-use-6b", ``, `cidrBlock: "fd70::/64"`, ``, "cidrBlock none cannot become fd70::/64 while addresses of it are in use"},
}

// inUse is the status of the Subnets among changes.
var inUse = map[string]string{
	"in-use": `{"status": {"v4usingIPrange": "10.70.0.5"}}`, "in-use-6": `{"status": {"v6usingIPrange": "fd70::5"}}`, "in-use-6b": `{"status": {"v6usingIPrange": "fd70::5"}}`,
	"in-use-ovn": `{"status": {"v4usingIPrange": "10.72.0.5"}}`, "in-use-lan": `{"status": {"v6usingIPrange": "fd72::5"}}`,
}

func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	c := installed(t)
	// A Subnet without addresses in use may get any cidrBlock.
	made := []string{manifest("Subnet", "free", `cidrBlock: 10.80.0.0/16`)}
	t.Cleanup(func() { c.Delete(strings.Join(made, "\n---\n")) })
	c.Apply(made[0])
	c.Kubectl("patch", "subnet", "free", "--subresource=status", "--type=merge", "-p", `{"status": {"v4usingIPrange": "", "v4usingIPs": 0}}`)
	c.Apply(manifest("Subnet", "free", `cidrBlock: 10.81.0.0/16`))
	for _, r := range changes {
		_, name, _ := strings.Cut(r.kind, " ")
		c.Apply(manifest(r.kind, "", r.before))
		made = append(made, manifest(r.kind, "", r.before))
		if status, ok := inUse[name]; ok {
			c.Kubectl("patch", "subnet", name, "--subresource=status", "--type=merge", "-p", status)
		}
		require.ErrorContains(t, c.TryApply(c.Admin(), manifest(r.kind, "", r.after)), r.says)
		require.NoError(t, c.TryApply(c.Admin(), manifest(r.kind, "", r.allowed)), r.kind)
	}
	// It is free again when the last address is.
	c.Kubectl("patch", "subnet", "in-use", "--subresource=status", "--type=merge", "-p", `{"status": {"v4usingIPrange": ""}}`)
	c.Apply(manifest("Subnet", "in-use", `cidrBlock: 10.71.0.0/16`))
}

// TestLongListsAreChecked: the rules' cost stays within the API server's budget
// for the longest lists that they admit.
func TestLongListsAreChecked(t *testing.T) {
	t.Parallel()
	c := installed(t)
	var excludes, pool []string
	for i := range 1000 {
		text := fmt.Sprintf(`"fd00:1111:2222:3333:4444:5555:%x:1111..fd00:1111:2222:3333:4444:5555:%x:2222"`, i+0x1000, i+0x1000)
		excludes, pool = append(excludes, text), append(pool, text)
	}
	spec := `cidrBlock: "10.16.0.0/16,fd00:1111:2222:3333::/64", excludeIps: [` + strings.Join(excludes, ", ") + `]`
	require.NoError(t, c.TryApply(c.Admin(), manifest("Subnet", "long", spec)))
	require.NoError(t, c.TryApply(c.Admin(), manifest("IPPool", "long", `subnet: long, ips: [`+strings.Join(pool, ", ")+`]`)))
	err := c.TryApply(c.Admin(), manifest("Subnet", "long", strings.Replace(spec, "10.16.0.0/16,fd00:1111:2222:3333::/64", "10.16.0.0/16", 1)))
	require.ErrorContains(t, err, "fd00:1111:2222:3333:4444:5555:1000:1111..fd00:1111:2222:3333:4444:5555:1000:2222 lies outside of cidrBlock 10.16.0.0/16")
}
