package e2e

import (
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// bookkeeping is a cluster of objects alone: nodes without agents, whose pods have
// eth0 in Subnet web, of OVN, and net1 in Subnet up, whose addresses are claims.
type bookkeeping struct {
	*ovnCluster
	process *testbed.Process
}

const upProvider = "up.web"

func newBookkeeping(t *testing.T, central func(testing.TB, *testbed.Node, string) *ovn.Central) *bookkeeping {
	t.Helper()
	b := &bookkeeping{ovnCluster: newOVNCentral(t, kube.Options{}, central)}
	for _, name := range []string{"node-1", "node-2"} {
		b.c.RegisterNode(name)
	}
	b.c.Apply(together(
		subnetObject("up", map[string]any{"cidrBlock": "10.31.0.0/16,fd31::/112", "provider": upProvider}),
		nadObject("web/up", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth0","ipam":{"type":"kube-ovn","provider":"`+upProvider+`"}}`),
	))
	b.start()
	return b
}

// start starts the controller, which leads at once: it has the name of the one before.
func (b *bookkeeping) start() { b.process = b.controller("a", "127.0.0.1:10666") }

// create makes a pod of namespace web.
func (b *bookkeeping) create(name, node string) {
	b.t.Helper()
	b.c.Apply(object("v1", "Pod", "web/"+name, map[string]string{networksKey: "up"},
		map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "c", "image": "none"}}}))
}

// remove deletes pods of namespace web, as a kubelet does that has ended them.
func (b *bookkeeping) remove(names ...string) {
	b.t.Helper()
	now := int64(0)
	for _, name := range names {
		require.NoError(b.t, b.c.Client().CoreV1().Pods("web").Delete(b.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
}

// holds waits until all is as disagreement wants it.
func (b *bookkeeping) holds(pods int) {
	b.t.Helper()
	eventually(b.t, func() string { return b.disagreement(pods) })
}

// disagreement is that of ovnCluster, where so many pods have addresses, in both Subnets.
func (b *bookkeeping) disagreement(pods int) string {
	b.t.Helper()
	said := b.told()
	if len(said.waits) > 0 || said.pods != pods {
		return fmt.Sprintf("%d of %d pods have their addresses; these wait: %v", said.pods, pods, said.waits)
	}
	if len(said.claimed) != 2*pods {
		return fmt.Sprintf("%d pods have claimed %v", pods, said.claimed)
	}
	return b.ovnCluster.disagreement()
}

// named are the crash points of the controller's source.
func (b *bookkeeping) named() (all []string) {
	b.t.Helper()
	here := regexp.MustCompile(`fail\.Here\("([^"]+)"\)`)
	require.NoError(b.t, filepath.WalkDir("../../internal/controller", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range here.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		return err
	}))
	slices.Sort(all)
	return slices.Compact(all)
}

// TestControllerCrashSweep kills the controller at its crash points (see sample), while
// a pod gets its addresses and while they are given back. The next one ends what was
// begun: no address is given twice, none is lost, nothing is without its object.
func TestControllerCrashSweep(t *testing.T) {
	t.Parallel()
	b := newBookkeeping(t, ovn.New)
	ops := []struct {
		name string
		run  func(pod string)
		pods int // besides the one that stays
	}{
		{"create", func(pod string) { b.create(pod, "node-1") }, 1},
		{"delete", func(pod string) { b.remove(pod) }, 0},
	}
	b.create("stays", "node-2")
	b.holds(1)
	passed := map[string][]string{}
	for _, op := range ops {
		b.site.CrashTrace()
		op.run("traced")
		b.holds(1 + op.pods)
		trace := b.site.CrashTrace()
		slices.Sort(trace)
		passed[op.name] = slices.Compact(trace)
	}
	var all []string
	for _, points := range passed {
		all = append(all, points...)
	}
	slices.Sort(all)
	require.Equal(t, b.named(), slices.Compact(all), "crash points in the source, and those that a pod passes")
	before := b.told()
	if !soak() {
		passed["create"], passed["delete"] = sample(passed["create"]), []string{"controller.cleared"}
	}
	n, times := 0, map[string]int{}
	for _, cut := range ops {
		for _, point := range passed[cut.name] {
			n++
			for _, op := range ops {
				if op.name == cut.name {
					b.site.Crash(point)
				}
				op.run(fmt.Sprintf("pod-%d", n))
				if op.name == cut.name && b.cut(1+op.pods) {
					times[point]++
					b.start()
				}
				b.holds(1 + op.pods)
			}
		}
	}
	require.Equal(t, before, b.told(), "the pod that stayed")
	b.remove("stays")
	b.holds(0)
	t.Logf("%d crash points, cuts: %v", len(b.named()), times)
	for _, point := range append(passed["create"], "controller.cleared") {
		require.Positive(t, times[point], "cuts at %s", point)
	}
}

// cut waits until the controller is killed at the point that was ordered. false: it has
// done what it was to do, and did not pass there; an update and the deletion that
// follows may come to it as one.
func (b *bookkeeping) cut(pods int) (killed bool) {
	b.t.Helper()
	eventually(b.t, func() string {
		if !b.process.Running() {
			killed = true
			return ""
		}
		return b.disagreement(pods)
	})
	if b.site.Crash(""); !killed && b.process.Running() {
		return false
	}
	require.Error(b.t, b.process.Wait())
	require.True(b.t, b.process.Killed())
	return true
}

// TestControllerKills ends the controller at random instants while pods come and go.
func TestControllerKills(t *testing.T) {
	t.Parallel()
	kills, pods := 6, 40
	if soak() {
		kills, pods = 200, 500
	}
	b := newBookkeeping(t, ovn.New)
	pod := func(i int) string { return fmt.Sprintf("pod-%d", i) }
	for i := range pods {
		b.create(pod(i), fmt.Sprintf("node-%d", 1+i%2))
		if i >= 8 && i%2 == 0 { // half of them go again, told or not
			b.remove(pod(i - 8))
		}
		if i*kills/pods == (i+1)*kills/pods {
			continue
		}
		time.Sleep(mathrand.N(2 * time.Second)) // the instant is what is random
		b.process.Kill()
		b.start()
		b.told()
	}
	var left []string
	for _, name := range b.c.Lines("pods", "{.metadata.namespace} {.metadata.name}") {
		if short, ok := strings.CutPrefix(name, "web "); ok {
			left = append(left, short)
		}
	}
	b.holds(len(left))
	b.remove(left...)
	b.holds(0)
	t.Logf("%d kills, %d pods, of which %d stayed", kills, pods, len(left))

	// What the southbound database has too much is seen.
	b.create("last", "node-1")
	b.holds(1)
	b.central.KillNorthd()
	b.remove("last")
	eventually(t, func() string {
		if why := b.disagreement(0); why != "the southbound database binds a port that is none: last.web" {
			return "no binding is too much: " + why
		}
		return ""
	})
	b.central.StartNorthd()
	b.holds(0)
}

// TestDatabaseLeaderKilled: the member that leads the northbound database of three dies
// while pods come and go, and comes back while they do so; the next ones after it, too.
func TestDatabaseLeaderKilled(t *testing.T) {
	t.Parallel()
	kills, pods := 2, 40
	if soak() {
		kills, pods = 20, 400
	}
	b := newBookkeeping(t, ovn.Clustered)
	members, dead := b.central.Members(), -1
	pod := func(i int) string { return fmt.Sprintf("pod-%d", i) }
	for i := range pods {
		b.create(pod(i), fmt.Sprintf("node-%d", 1+i%2))
		if i >= 8 && i%2 == 0 {
			b.remove(pod(i - 8))
		}
		if i*kills/pods == (i+1)*kills/pods {
			continue
		}
		if dead >= 0 {
			members.Start(dead)
		}
		dead = members.Leader()
		members.Kill(dead)
	}
	left := 0
	for i := range pods {
		if i%2 == 1 || i+8 >= pods {
			left++
		}
	}
	b.holds(left) // of two members, too
	members.Start(dead)
	b.create("late", "node-1")
	b.holds(left + 1)
}

// TestControllerWithoutAPI: the API server hangs, longer than a leader's Lease lasts, and
// is restarted, while pods come; the controller, which is the same all the time, goes on
// with them and with those that come later.
func TestControllerWithoutAPI(t *testing.T) {
	t.Parallel()
	b := newBookkeeping(t, ovn.New)
	pods := 0
	burst := func() {
		for range 8 {
			b.create(fmt.Sprintf("pod-%d", pods), "node-1")
			pods++
		}
	}
	burst()
	b.holds(pods)
	for _, away := range []func(){
		func() { b.c.Pause(); time.Sleep(ovnLease + time.Second); b.c.Resume() },
		func() { b.c.Stop(); time.Sleep(time.Second); b.c.Restart() },
	} {
		burst()
		away()
		burst()
		b.holds(pods)
		b.remove(fmt.Sprintf("pod-%d", pods-1))
		pods-- // its name comes again
		b.holds(pods)
	}
	require.True(t, b.process.Running())
}
