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

func newBookkeeping(t *testing.T) *bookkeeping {
	t.Helper()
	b := &bookkeeping{ovnCluster: newOVNCentral(t, kube.Options{}, ovn.New)}
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

// list is a line for each object of a kind, in order; the nodes' own are left out.
func (b *bookkeeping) list(kind, format string) (lines []string) {
	b.t.Helper()
	for _, line := range b.c.Lines(kind, format) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "node-") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// told are the pods' addresses as their annotations say them: eth0's as PORT MAC
// IPS, net1's as PORT IPS. A pod of which one is not told is only a name in waits.
func (b *bookkeeping) told() (routed, claimed, waits []string) {
	b.t.Helper()
	const note = `{.metadata.annotations.%s\.kubernetes\.io/%s}|`
	format := "{.metadata.name}|" + fmt.Sprintf(note, "ovn", "mac_address") + fmt.Sprintf(note, "ovn", "ip_address") + fmt.Sprintf(note, `ovn`, "routed") +
		fmt.Sprintf(note, `up\.web`, "ip_address")
	for _, line := range b.list("pods", format) {
		f := strings.Split(line, "|")
		if slices.Contains(f[:5], "") {
			waits = append(waits, f[0])
			continue
		}
		require.Equal(b.t, "true", f[3])
		routed = append(routed, f[0]+".web "+f[1]+" "+strings.ReplaceAll(f[2], ",", " "))
		for ip := range strings.SplitSeq(f[4], ",") {
			claimed = append(claimed, f[0]+" "+ip)
		}
	}
	return routed, claimed, waits
}

// twice is an address that is in two of the lines.
func twice(lines []string) string {
	by := map[string]string{}
	for _, line := range lines {
		for _, ip := range strings.Fields(line)[1:] {
			if by[ip] != "" {
				return fmt.Sprintf("%s is that of %q and of %q", ip, by[ip], line)
			}
			by[ip] = line
		}
	}
	return ""
}

// rows are the ports of pods as the northbound database says them, as told has them.
func (b *bookkeeping) rows() (lines []string) {
	b.t.Helper()
	out := b.central.Nbctl("--bare", "--columns=name,addresses", "find", "Logical_Switch_Port", `type=""`)
	for row := range strings.SplitSeq(out, "\n\n") {
		if row = strings.TrimSpace(row); row != "" && !strings.HasPrefix(row, "node-") {
			lines = append(lines, strings.Join(strings.Fields(row), " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// holds waits until all is as disagreement wants it.
func (b *bookkeeping) holds(pods int) {
	b.t.Helper()
	eventually(b.t, func() string { return b.disagreement(pods) })
}

// disagreement is "" when pods, rows, IP objects, claims and counts say one thing: so
// many pods have addresses, and nothing else has any, and the controller has nothing to
// do. That an address is given twice is the test's end.
func (b *bookkeeping) disagreement(pods int) string {
	b.t.Helper()
	routed, claimed, waits := b.told()
	require.Empty(b.t, twice(append(slices.Clone(routed), claimed...)), "given twice")
	if len(waits) > 0 || len(routed) != pods {
		return fmt.Sprintf("%d of %d pods have their addresses; these wait: %v", len(routed), pods, waits)
	}
	for _, look := range []struct {
		what      string
		want, got []string
	}{
		{"rows of the database", routed, b.rows()},
		{"claims", claimed, b.list("addressleases", "{.spec.owner.name} {.spec.address}")},
		{"IP objects", b.objects(routed, claimed), b.list("ips", "{.spec.podName} {.spec.subnet} {.spec.ipAddress}")},
	} {
		slices.Sort(look.want)
		if !slices.Equal(look.want, look.got) {
			return fmt.Sprintf("%s: %q, want %q", look.what, look.got, look.want)
		}
	}
	counts := b.list("subnets", "{.metadata.name} {.status.v4usingIPs}")
	for _, subnet := range []string{"web", "up"} {
		if want := fmt.Sprintf("%s %d", subnet, pods); !slices.Contains(counts, want) {
			return fmt.Sprintf("Subnets count %q: wanted %q", counts, want)
		}
	}
	metrics, err := b.site.Try("bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/10666; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	if err != nil || !strings.Contains(metrics, "\nfairlead_controller_leading 1\n") || !strings.Contains(metrics, "\nfairlead_controller_pending 0\n") {
		return fmt.Sprintf("the controller has something to do: %v %s", err, metrics)
	}
	return ""
}

// objects are the IP objects that pods with such addresses have.
func (b *bookkeeping) objects(routed, claimed []string) (lines []string) {
	for _, line := range routed {
		f := strings.Fields(line)
		lines = append(lines, strings.TrimSuffix(f[0], ".web")+" web "+strings.Join(f[2:], ","))
	}
	both := map[string][]string{}
	for _, line := range claimed {
		f := strings.Fields(line)
		both[f[0]] = append(both[f[0]], f[1])
	}
	for pod, ips := range both {
		lines = append(lines, pod+" up "+strings.Join(ips, ","))
	}
	return lines
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
	b := newBookkeeping(t)
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
	before, _, _ := b.told()
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
	after, _, _ := b.told()
	require.Equal(t, before, after, "the pod that stayed")
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
	b := newBookkeeping(t)
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
		routed, claimed, _ := b.told()
		require.Empty(t, twice(append(routed, claimed...)), "given twice")
	}
	left := b.list("pods", "{.metadata.name}")
	b.holds(len(left))
	b.remove(left...)
	b.holds(0)
	t.Logf("%d kills, %d pods, of which %d stayed", kills, pods, len(left))
}
