package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// TestRule1_NothingRunsWhenOneRequestIsBad: whatever is wrong with the second
// network of a pod, the plugins of the first do not run, and the message names
// the place.
func TestRule1_NothingRunsWhenOneRequestIsBad(t *testing.T) {
	t.Parallel()
	const good = `{"name":"good"}`
	cases := []struct{ name, element, place string }{
		{"same-interface", `{"name":"good","interface":"a0"},{"name":"good","interface":"a0"}`, "interface"},
		{"eth0", `{"name":"good","interface":"eth0"}`, "interface"},
		{"long-interface", `{"name":"good","interface":"sixteen-bytes-ab"}`, "interface"},
		{"ips", `{"name":"good","ips":["10.0.0.2/24"]}`, "ips"},
		{"mac", `{"name":"good","mac":"02:00:00:00:00:01"}`, "mac"},
		{"guid", `{"name":"good","infiniband-guid":"00:11:22:33:44:55:66:77"}`, "infiniband-guid"},
		{"ports", `{"name":"good","portMappings":[{"hostPort":80,"containerPort":80}]}`, "portMappings"},
		{"rates", `{"name":"good","bandwidth":{"ingressRate":1000}}`, "bandwidth"},
		{"claim-and-ips", `{"name":"able","ips":["10.0.0.2/24"],"ipam-claim-reference":"c"}`, "ips"},
		{"burst", `{"name":"able","bandwidth":{"ingressBurst":1000}}`, "bandwidth.ingressBurst"},
		{"port", `{"name":"able","portMappings":[{"hostPort":70000,"containerPort":80}]}`, "hostPort"},
		{"short-mac", `{"name":"able","mac":"02:00:00:00:00:00:00:01"}`, "mac"},
		{"short-guid", `{"name":"able","infiniband-guid":"00:11:22:33:44:55"}`, "infiniband-guid"},
		{"bad-name", `{"name":"Good"}`, "name"},
		{"no-network", `{"name":"nobody"}`, "default/nobody"},
		{"junk", `{"name":"junk"}`, "default/junk"},
		{"no-plugin", `{"name":"none"}`, "default/none"},
		{"null-plugin", `{"name":"null"}`, "default/null"},
	}
	objects := []string{
		nadObject("good", `{"cniVersion":"1.0.0","type":"rec"}`),
		nadObject("able", `{"cniVersion":"1.0.0","type":"rec","capabilities":{"ips":true,"mac":true,"infinibandGUID":true,"portMappings":true,"bandwidth":true}}`),
	}
	for _, c := range cases {
		objects = append(objects, asking(c.name, "["+good+","+c.element+"]"))
	}
	n, r := recorderNode(t, together(objects...), "rec")
	for name, config := range map[string]string{"junk": "{", "none": `{"name":"x","plugins":[]}`, "null": `{"name":"x","plugins":[null]}`} {
		n.WriteObjects(name+".yaml", nadObject(name, config))
	}
	before := n.Inventory()
	for _, c := range cases {
		p := n.NewPod(c.name)
		e := p.CNI("ADD", ownConf).Err()
		require.NotNil(t, e, c.name)
		require.Contains(t, e.Msg+e.Details, c.place, c.name)
		require.Empty(t, r.take(), c.name)
		require.Equal(t, []string{"lo"}, linkNames(t, p), c.name)
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestRule2_EverybodyGetsHisOwn: kubelet's runtimeConfig goes to the default
// network, an element's to its own network, cni-args to every plugin of a list
// over what the NAD says, and MAC= and IP= to DEL as to ADD.
func TestRule2_EverybodyGetsHisOwn(t *testing.T) {
	t.Parallel()
	const caps = `"capabilities":{"portMappings":true,"mac":true,"ips":true}`
	n, r := recorderNode(t, together(
		nadObject("a", `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"one",`+caps+`,"args":{"cni":{"x":1,"y":2},"other":3}},{"type":"two"}]}`),
		nadObject("b", `{"cniVersion":"1.0.0","type":"three",`+caps+`}`),
		asking("p", `[{"name":"a","mac":"02:00:00:00:00:0a","ips":["10.0.0.2/24"],"cni-args":{"y":{"deep":[1]},"z":"w"}},{"name":"b","portMappings":[{"hostPort":81,"containerPort":80}]}]`)),
		"zero", "one", "two", "three")
	conf := `{"cniVersion":"1.0.0","name":"m","type":"multus","runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]},
		"delegates":[{"cniVersion":"1.0.0","name":"main","type":"zero",` + caps + `}]}`
	p := n.NewPod("p")
	p.CNI("ADD", conf).Must()
	p.CNI("DEL", conf).Must()
	type stdin struct {
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
		Args          map[string]json.RawMessage `json:"args"`
	}
	want := map[string]struct{ rc, cni, env string }{
		"zero":  {"portMappings", "", ""},
		"one":   {"ips,mac", `{"x":1,"y":{"deep":[1]},"z":"w"}`, ";MAC=02:00:00:00:00:0a;IP=10.0.0.2/24"},
		"two":   {"", `{"y":{"deep":[1]},"z":"w"}`, ";MAC=02:00:00:00:00:0a;IP=10.0.0.2/24"},
		"three": {"portMappings", "", ""},
	}
	calls := r.take()
	require.Len(t, calls, 8)
	for _, c := range calls {
		var in stdin
		require.NoError(t, json.Unmarshal(c.Stdin, &in))
		w := want[c.Type]
		require.Equal(t, w.rc, strings.Join(slices.Sorted(maps.Keys(in.RuntimeConfig)), ","), c.String())
		require.Equal(t, p.Args()+w.env, c.Env["CNI_ARGS"], c.String())
		if w.cni != "" {
			require.JSONEq(t, w.cni, string(in.Args["cni"]), c.String())
		}
		if c.Type == "zero" {
			require.Contains(t, string(in.RuntimeConfig["portMappings"]), "8080")
		}
		if c.Type == "three" {
			require.NotContains(t, string(in.RuntimeConfig["portMappings"]), "8080")
		}
	}
}

// TestRule3_EveryStepMayFail: whichever of five plugins fails, exactly what was
// begun is undone, in reverse, and the plugin's code is the answer.
func TestRule3_EveryStepMayFail(t *testing.T) {
	t.Parallel()
	all := []string{"r0", "r1", "r2", "r3", "r4"}
	n, r := recorderNode(t, together(
		nadObject("a", `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"r1"},{"type":"r2"}]}`),
		nadObject("b", `{"cniVersion":"0.3.1","name":"b","plugins":[{"type":"r3"},{"type":"r4"}]}`),
		asking("p", "a,b")), all...)
	conf := `{"cniVersion":"1.0.0","name":"m","type":"multus","delegates":[{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"fairlead"},{"type":"r0"}]}]}`
	before := n.Inventory()
	for i, bad := range all {
		r.order(bad, "ADD", fmt.Sprintf("fail %d no", 200+i))
		p := n.NewPod("p")
		p.CNI("ADD", conf).MustCode(uint(200 + i))
		var want []string
		for _, name := range all[:i+1] {
			want = append(want, "ADD "+name)
		}
		for j := i; j >= 0; j-- {
			want = append(want, "DEL "+all[j])
		}
		require.Equal(t, want, verbs(r.take()), bad)
		require.Equal(t, []string{"lo"}, linkNames(t, p))
		r.order(bad, "ADD", "")
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestRule4_NeverSeen: a container that nobody recorded is removed as far as
// the configuration and the pod's annotation tell, and DEL succeeds.
func TestRule4_NeverSeen(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(nadObject("a", `{"cniVersion":"1.0.0","type":"one"}`), asking("p", "a")), "zero", "one")
	conf := `{"cniVersion":"1.0.0","name":"m","type":"multus","delegates":[{"cniVersion":"1.0.0","name":"main","type":"zero"}]}`
	before := n.Inventory()
	p := n.NewPod("p")
	r.order("one", "DEL", "fail 7 no idea")
	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"DEL one", "DEL zero"}, verbs(r.take()))
	p.Delete()
	stranger := n.NewPod("stranger")
	stranger.CNI("DEL", conf).Must()
	stranger.CNI("DEL", `{"cniVersion":"1.0.0","name":"m","type":"multus","clusterNetwork":"/nowhere/at/all"}`).Must()
	stranger.Delete()
	n.RequireNoLeaks(before)
}

// TestRule5_UIDMismatch: a late ADD for a pod whose name another pod has taken
// is an error, and touches nothing; kubelet's hash of a static pod is none.
func TestRule5_UIDMismatch(t *testing.T) {
	t.Parallel()
	const uid = "8f0ff6ee-4b4c-4cf9-8bb3-0b2a6d39d0fa"
	n := startNode(t, map[string]string{"all.yaml": fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":%q}}`, uid)})
	before := n.Inventory()
	for sent, code := range map[string]uint{
		uid: 0, "": 0, "0123456789abcdef0123456789abcdef": 0, "11111111-4b4c-4cf9-8bb3-0b2a6d39d0fa": 11,
	} {
		p := n.NewPod("p")
		answer := n.CNI(cni.Request{
			Command: "ADD", ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0", Args: p.Args() + ";K8S_POD_UID=" + sent, Config: []byte(ownConf),
		})
		if code == 0 {
			answer.Must()
		} else {
			require.Contains(t, answer.MustCode(code).Msg, uid)
			require.Equal(t, []string{"lo"}, linkNames(t, p))
		}
		p.CNI("DEL", ownConf).Must()
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestRule6_GCGivesEachNetworkItsShare: every foreign plugin hears of the
// attachments that remain on its own network, under both names of the key.
func TestRule6_GCGivesEachNetworkItsShare(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("a", `{"cniVersion":"1.1.0","name":"a","type":"one"}`), nadObject("b", `{"cniVersion":"1.1.0","name":"b","type":"one"}`),
		nadObject("old", `{"cniVersion":"1.0.0","name":"old","type":"one"}`),
		nadObject("quiet", `{"cniVersion":"1.1.0","name":"quiet","disableGC":true,"plugins":[{"type":"one"}]}`),
		asking("p", "a,b,old,quiet"), asking("q", "a@data0"), asking("gone", "b")), "one", "main")
	conf := `{"cniVersion":"1.1.0","name":"m","type":"multus","delegates":[{"cniVersion":"1.1.0","name":"main","type":"main"}]}`
	before := n.Inventory()
	p, q, gone := n.NewPod("p"), n.NewPod("q"), n.NewPod("gone")
	for _, pod := range []*testbed.Pod{p, q, gone} {
		pod.CNI("ADD", conf).Must()
	}
	r.take()
	n.CNI(cni.Request{Command: "GC", Config: []byte(strings.TrimSuffix(conf, "}") + fmt.Sprintf(
		`,"cni.dev/valid-attachments":[{"containerID":%q,"ifname":"eth0"},{"containerID":%q,"ifname":"eth0"}]}`, p.ContainerID, q.ContainerID))}).Must()
	shares := map[string][]string{}
	for _, c := range r.take() {
		if c.Env["CNI_COMMAND"] == "DEL" {
			require.Equal(t, gone.ContainerID, c.Env["CNI_CONTAINERID"])
			continue
		}
		var in struct {
			Name  string
			Valid []struct{ ContainerID, IfName string } `json:"cni.dev/valid-attachments"`
			Old   []struct{ ContainerID, IfName string } `json:"cni.dev/attachments"`
		}
		require.NoError(t, json.Unmarshal(c.Stdin, &in))
		require.Equal(t, in.Valid, in.Old)
		require.NotContains(t, shares, in.Name)
		shares[in.Name] = []string{}
		for _, v := range in.Valid {
			shares[in.Name] = append(shares[in.Name], v.ContainerID[:6]+"/"+v.IfName)
		}
	}
	pid, qid := p.ContainerID[:6], q.ContainerID[:6]
	require.Len(t, shares, 3)
	require.ElementsMatch(t, []string{pid + "/eth0", qid + "/eth0"}, shares["main"])
	require.ElementsMatch(t, []string{pid + "/net1", qid + "/data0"}, shares["a"])
	require.ElementsMatch(t, []string{pid + "/net2"}, shares["b"])
	n.CNI(cni.Request{Command: "GC", Config: []byte(conf)}).MustCode(7)
	for _, pod := range []*testbed.Pod{p, q, gone} {
		pod.CNI("DEL", conf).Must()
		pod.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestRule7_EmptyDefaultRoute: the list may be empty; the network's own gateway
// then takes the pod's default route from a default network of somebody else's.
func TestRule7_EmptyDefaultRoute(t *testing.T) {
	t.Parallel()
	mac := func(ipam string) string {
		return `{"cniVersion":"1.0.0","name":"mac","type":"macvlan","master":"bond0","ipam":{"type":"static",` + ipam + `}}`
	}
	n := upstreamNode(t,
		nadObject("routed", mac(`"addresses":[{"address":"10.62.0.7/24","gateway":"10.62.0.1"},{"address":"fd00:62::7/64","gateway":"fd00:62::1"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`)),
		nadObject("plain", mac(`"addresses":[{"address":"10.62.0.7/24","gateway":"10.62.0.1"}]`)),
		nadObject("mute", mac(`"addresses":[{"address":"10.62.0.7/24"}]`)),
		asking("a", `[{"name":"routed","default-route":[]}]`), asking("b", `[{"name":"plain","default-route":[]}]`), asking("c", `[{"name":"mute","default-route":[]}]`))
	before := n.Inventory()
	for pod, v6 := range map[string]bool{"a": true, "b": false} {
		p := n.NewPod(pod)
		added := p.CNI("ADD", metaConf("")).Must()
		require.Equal(t, []string{"default via 10.62.0.1 dev net1"}, trimProto(defaultRoutes(p, "-4")))
		require.Equal(t, v6, len(defaultRoutes(p, "-6")) == 1)
		require.False(t, hasDefault(t, added), "eth0 has lost it")
		status := statuses(t, n, "default/"+pod)
		require.Empty(t, status[0].Gateway)
		require.Contains(t, status[1].DefaultRoute, "10.62.0.1")
		p.CNI("CHECK", withPrev(metaConf(""), added.Stdout)).Must()
		p.Run("ip", "route", "replace", "default", "via", "10.62.0.9")
		p.CNI("CHECK", withPrev(metaConf(""), added.Stdout)).MustCode(106)
		p.CNI("DEL", metaConf("")).Must()
		p.Delete()
	}
	p := n.NewPod("c")
	require.Contains(t, p.CNI("ADD", metaConf("")).MustCode(102).Msg, "default/mute")
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	p.Delete()
	n.RequireNoLeaks(before)
}

// TestRule9_EveryDelegateVersion: delegates of each CNI version under runtimes
// of each: a delegate sees its own version, in prevResult too, the runtime its
// own.
func TestRule9_EveryDelegateVersion(t *testing.T) {
	t.Parallel()
	versions := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	n := testbed.New(t)
	r := installRecorders(t, n, "rec")
	n.Agent(r.args()...).WaitReady()
	awaitGateways(t, n)
	before := n.Inventory()
	for _, delegate := range versions {
		for _, runtime := range versions {
			conf := fmt.Sprintf(`{"cniVersion":%q,"name":"m","type":"multus","delegates":[
				{"cniVersion":%q,"name":"main","plugins":[{"type":"fairlead"},{"type":"rec"}]}]}`, runtime, delegate)
			p := n.NewPod("p")
			var head struct {
				CNIVersion string `json:"cniVersion"`
				PrevResult struct {
					CNIVersion string `json:"cniVersion"`
				} `json:"prevResult"`
			}
			p.CNI("ADD", conf).Decode(&head)
			require.Equal(t, runtime, head.CNIVersion)
			require.NoError(t, json.Unmarshal(r.take()[0].Stdin, &head))
			require.Equal(t, delegate+" "+delegate, head.CNIVersion+" "+head.PrevResult.CNIVersion)
			p.CNI("DEL", conf).Must()
			require.Len(t, r.take(), 1)
			p.Delete()
		}
	}
	n.RequireNoLeaks(before)
}
