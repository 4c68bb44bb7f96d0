package whereabouts_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/question"
	"github.com/fairlead/fairlead/internal/ops/whereabouts"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

func nad(name, ipam, notes string) string {
	return fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {namespace: bank, name: %s, annotations: {%s}}, spec: {config: '{"cniVersion":"1.0.0","type":"macvlan","ipam":{"type":"whereabouts",%s}}'}}`, name, notes, ipam)
}

func ipPool(name, cidr, allocations string) string {
	return fmt.Sprintf(`{apiVersion: whereabouts.cni.cncf.io/v1alpha1, kind: IPPool, metadata: {namespace: kube-system, name: %s}, spec: {range: "%s", allocations: {%s}}}`, name, cidr, allocations)
}

// bed is a cluster with the command's rows.
type bed struct {
	*testing.T

	c *kube.Cluster
}

// run is the command; its rows are address, pod, interface, state, and the lease.
func (b bed) run(flags ...string) (rows []string, failed bool) {
	b.Helper()
	api, err := query.New(query.Options{Files: []string{b.c.AdminKubeconfig()}, Note: func(string) {}})
	require.NoError(b, err)
	asked := question.Asked{Origin: client.Origin{API: api}, Flags: map[string]string{}, Note: func(string) {}}
	for _, f := range flags {
		asked.Flags[f] = "true"
	}
	a, err := whereabouts.Question().Ask(b.Context(), asked)
	require.NoError(b, err)
	for _, g := range a.Value.([]whereabouts.Given) {
		rows = append(rows, strings.TrimSpace(fmt.Sprint(g.Address, " ", g.Pod, " ", g.Interface, " ", g.State, " ", g.Lease)))
	}
	return rows, a.Failed
}

func (b bed) holder(name string) string {
	b.Helper()
	return b.c.Kubectl("get", "addressleases.net.fairlead.io", name, "--ignore-not-found", "-o", "jsonpath={.status.phase} {.spec.owner.pod} {.spec.owner.interface} {.spec.holder.sandbox} {.spec.holder.node} {.spec.holder.bootID}")
}

// pod makes a pod on n1 with addresses as network-status has them, "" for none there.
func (b bed) pod(name, status string, phase corev1.PodPhase) {
	b.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: name, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if status != "" {
		p.Annotations["k8s.v1.cni.cncf.io/network-status"] = status
	}
	made, err := b.c.Client().CoreV1().Pods("bank").Create(b.Context(), p, metav1.CreateOptions{})
	require.NoError(b, err)
	made.Status.Phase = phase
	_, err = b.c.Client().CoreV1().Pods("bank").UpdateStatus(b.Context(), made, metav1.UpdateOptions{})
	require.NoError(b, err)
}

// TestImport: what the program has given to living pods is leased to them after --apply, in
// the domain in which agents lease addresses of that range; what is not adopted is told, and
// --rollback leaves all as it was.
func TestImport(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	b := bed{t, c}
	kinds.IPPools(t, c)
	c.RegisterNode("n1")
	c.ReportBoot("n1", "boot-1")
	c.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: bank}}`)
	c.Apply(strings.Join([]string{
		nad("one", `"range":"10.0.0.0/24"`, ""), nad("racks", `"range":"10.1.0.0/24","network_name":"racks"`, `net.fairlead.io/l2-domain: floor`),
		nad("apart", `"range":"fd00::/64","enable_overlapping_ranges":false`, ""),
	}, "\n---\n"))
	b.pod("a", `[{"name":"bank/one","interface":"net1","ips":["10.0.0.5"]},{"name":"bank/apart","interface":"net2","ips":["fd00::10"]}]`, corev1.PodRunning)
	b.pod("b", "", corev1.PodRunning)
	b.pod("over", "", corev1.PodSucceeded)
	b.pod("anew", `[{"name":"bank/one","interface":"net1","ips":["10.0.0.77"]}]`, corev1.PodRunning)
	c.Apply(strings.Join([]string{
		ipPool("10.0.0.0-24", "10.0.0.0/24", `"5": {id: s1, podref: bank/a}, "6": {id: s2, podref: bank/b, ifname: net1}, "7": {id: s3, podref: bank/gone, ifname: net1}, "8": {id: s4, podref: bank/over, ifname: net1}, "9": {id: s5, podref: bank/anew, ifname: net1}`),
		ipPool("racks-10.1.0.0-24", "10.1.0.0/24", `"1": {id: s2, podref: bank/b, ifname: net2}`),
		ipPool("fd00---64", "fd00::/64", `"16": {id: s1, podref: bank/a, ifname: net2}`),
		ipPool("other-10.2.0.0-24", "10.2.0.0/24", `"1": {id: s2, podref: bank/b, ifname: net3}`),
		ipPool("10.3.0.0-24-n1", "10.3.0.0/24", ``),
	}, "\n---\n"))

	const apart = "whereabouts.fd00-0000-0000-0000-0000-0000-0000-0000-64.fd00-0000-0000-0000-0000-0000-0000-0010"
	rows := func(state string) []string {
		return []string{
			"10.0.0.5 bank/a net1 " + state + " whereabouts.10.0.0.5", "10.0.0.6 bank/b net1 " + state + " whereabouts.10.0.0.6",
			"10.0.0.7 bank/gone net1 gone", "10.0.0.8 bank/over net1 gone", "10.0.0.9 bank/anew net1 stale",
			"fd00::10 bank/a net2 " + state + " " + apart, "10.2.0.1 bank/b net3 " + state + " whereabouts.other.10.2.0.1", "10.1.0.1 bank/b net2 " + state + " floor.10.1.0.1",
		}
	}
	have, failed := b.run()
	require.Equal(t, rows("found"), have)
	require.False(t, failed)
	require.Empty(t, b.holder("whereabouts.10.0.0.5"), "it was only looked at")
	for range 2 { // the second time there is nothing to do
		have, _ = b.run("apply")
		require.Equal(t, rows("adopted"), have)
	}
	require.Equal(t, "Bound a net1 s1 n1 boot-1", b.holder("whereabouts.10.0.0.5"))
	require.Equal(t, "Bound b net2 s2 n1 boot-1", b.holder("floor.10.1.0.1"))
	have, _ = b.run("plan")
	require.Equal(t, rows("adopted"), have)

	// An agent gives one to a later pod, which --rollback does not take away.
	c.Kubectl("patch", "addressleases.net.fairlead.io", "whereabouts.10.0.0.6", "--type=merge", "-p", `{"spec":{"owner":{"pod":"later"},"holder":{"sandbox":"s9","podUID":"u9","epoch":2}}}`)
	have, failed = b.run()
	require.True(t, failed)
	require.Contains(t, have, "10.0.0.6 bank/b net1 held whereabouts.10.0.0.6")
	have, _ = b.run("rollback")
	require.Contains(t, have, "10.0.0.6 bank/later net1 adopted whereabouts.10.0.0.6")
	require.Contains(t, have, "10.0.0.5 bank/a net1 left whereabouts.10.0.0.5")
	require.Empty(t, b.holder("whereabouts.10.0.0.5"))
	require.Equal(t, "Bound later net1 s9 n1 boot-1", b.holder("whereabouts.10.0.0.6"))

	// What cannot be understood is in the way.
	c.Apply(ipPool("10.4.0.0-24-n1", "10.4.0.0/24", `"1": {id: s1, podref: bank/a}`))
	c.Apply(ipPool("10.5.0.0-24", "10.5.0.0/24", `"x": {id: s1, podref: bank/a}, "1": {id: s1, podref: a}, "2": {id: "", podref: bank/a}`))
	have, failed = b.run("apply")
	require.True(t, failed)
	require.Subset(t, have, []string{"broken", "bank/a  broken", "10.5.0.1 a  broken", "10.5.0.2 bank/a  broken"})
}

// TestRefusals: a cluster without the program's kind, none at all, and flags that contradict.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	api, err := query.New(query.Options{Files: []string{c.AdminKubeconfig()}, Note: func(string) {}})
	require.NoError(t, err)
	ask := func(o client.Origin, flags map[string]string) error {
		_, err := whereabouts.Question().Ask(context.Background(), question.Asked{Origin: o, Flags: flags})
		return err
	}
	require.ErrorContains(t, ask(client.Origin{API: api}, nil), "this cluster has no IPPools of whereabouts")
	require.ErrorContains(t, ask(client.Origin{}, nil), "objects of a cluster")
	for _, both := range []map[string]string{{"apply": "true", "rollback": "true"}, {"plan": "true", "apply": "true"}, {"plan": "true", "rollback": "true"}} {
		require.ErrorContains(t, ask(client.Origin{API: api}, both), "give one of")
	}
}
