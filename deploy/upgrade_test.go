package deploy

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/yaml"
	kyaml "sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestOldObjectsStay: an object that was stored before the rules and breaks them
// can be labelled, told about and deleted; its spec can only become good.
func TestOldObjectsStay(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{NoCRDs: true})
	kinds := []string{"subnets", "vlans"}
	for _, kind := range kinds {
		c.Apply(withoutRules(t, kind))
		c.Kubectl("wait", "--for=condition=Established", "crd/"+kind+".kubeovn.io")
	}
	old := []struct{ kind, spec, worse, good, field string }{
		{"Subnet", `cidrBlock: 10.16.0.5/16, gateway: 10.17.0.1, excludeIps: [nobody]`, `cidrBlock: 10.16.0.5/16, gateway: 10.17.0.2, excludeIps: [nobody]`,
			`cidrBlock: 10.16.0.0/16, gateway: 10.16.0.1, excludeIps: []`, "spec.cidrBlock"},
		{"Vlan", `id: 4095`, `id: 4096`, `id: 4094`, "spec.id"},
	}
	for _, o := range old {
		require.Eventually(t, func() bool { return c.TryApply(c.Admin(), manifest(o.kind, "old", o.spec)) == nil }, time.Minute, 20*time.Millisecond, "%s is not served", o.kind)
	}
	for _, kind := range kinds {
		c.Apply(crdText(t, kind))
	}
	for _, o := range old {
		n := 0 // a new name each time: one that was stored may stay
		require.Eventually(t, func() bool {
			n++
			return c.TryApply(c.Admin(), manifest(o.kind, fmt.Sprintf("new-%d", n), o.spec)) != nil
		}, time.Minute, 20*time.Millisecond, "the rules of %s are not in force", o.kind)
		c.Kubectl("label", o.kind, "old", "a=b")
		c.Kubectl("patch", o.kind, "old", "--type=merge", "-p", `{"metadata": {"finalizers": ["example.com/f"]}}`)
		c.Kubectl("patch", o.kind, "old", "--type=merge", "--subresource=status", "-p", `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`)
		require.ErrorContains(t, c.TryApply(c.Admin(), manifest(o.kind, "old", o.worse)), o.field)
		c.Kubectl("delete", o.kind, "old", "--wait=false")
		c.Apply(manifest(o.kind, "old", o.good))
		c.Kubectl("patch", o.kind, "old", "--type=merge", "-p", `{"metadata": {"finalizers": null}}`)
		require.Eventually(t, func() bool {
			_, err := c.TryKubectl("", "get", o.kind, "old")
			return err != nil
		}, time.Minute, 20*time.Millisecond, "%s is not gone", o.kind)
	}
}

func crdText(t *testing.T, plural string) string {
	t.Helper()
	text, err := os.ReadFile(ChartDir + "/crds/kubeovn.io_" + plural + ".yaml")
	require.NoError(t, err)
	return string(text)
}

// withoutRules is the chart's CRD as a release before the rules had it.
func withoutRules(t *testing.T, plural string) string {
	t.Helper()
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(crdText(t, plural)), &crd))
	strip(crd)
	text, err := kyaml.Marshal(crd)
	require.NoError(t, err)
	return string(text)
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"x-kubernetes-validations", "maximum", "maxLength", "maxItems"} {
			delete(v, key)
		}
		for _, value := range v {
			strip(value)
		}
	case []any:
		for _, e := range v {
			strip(e)
		}
	}
}
