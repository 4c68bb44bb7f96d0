package elsewhere

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// TestNobodyLeads: with the chart's rights, of a real API server: who waited for an
// address in vain hears since when no controller answers, and nothing of the kind while
// one leads, or where there never was one.
func TestNobodyLeads(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	for _, set := range []string{"namespace=" + ns, "ovn.enabled=true", "ovn.nb=tcp:192.0.2.1:6641"} {
		require.NoError(t, v.Set(set))
	}
	all, err := manifest.Render(v)
	require.NoError(t, err)
	rights, err := manifest.YAML(slices.DeleteFunc(all, func(o manifest.Object) bool {
		return o.Name() != "fairlead-agent" || !slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding"}, o.Kind())
	}))
	require.NoError(t, err)
	c.Apply(string(rights))
	from := login.New(login.Config{Kubeconfig: c.Kubeconfig(c.ServiceAccountConfig(ns, "fairlead-agent")), Node: ns, UserAgent: "fairlead/test"}).Current
	says := func(want string) {
		t.Helper()
		var told string
		var err error
		require.Eventually(t, func() bool {
			told, err = Leaderless(t.Context(), from, ns)
			return err == nil && told == want
		}, time.Minute, 50*time.Millisecond, "%q", want)
	}
	says("")

	lease := func(holder string, renewed time.Time) {
		c.Apply(fmt.Sprintf("apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: fairlead-controller, namespace: %s}\n"+
			"spec: {holderIdentity: %q, leaseDurationSeconds: 3600, renewTime: %q}\n", ns, holder, renewed.UTC().Format("2006-01-02T15:04:05.000000Z")))
	}
	since := time.Now().Add(-2 * time.Hour).Truncate(time.Second)
	told := "no controller answers since " + since.Local().Format(time.RFC3339) + ": fairlead-controller runs nowhere, or reaches OVN's northbound database from nowhere"
	lease("ctl-1", since)
	says(told)
	lease("ctl-2", time.Now())
	says("")
	lease("", since)
	says(told)
}
