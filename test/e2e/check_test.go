package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// checkObjects: a pod with VLAN, rates, a route and a mirror, and a dual-stack
// pod whose subnet translates addresses.
func checkObjects() map[string]string {
	return map[string]string{"all.yaml": together(
		subnetObject("ovn-default", map[string]any{
			"default": true, "protocol": "Dual", "natOutgoing": true, "cidrBlock": "10.16.0.0/16,fd00:10:16::/112",
		}),
		object("kubeovn.io/v1", "Vlan", "vlan100", nil, map[string]any{"id": 100}),
		subnetObject("tagged", map[string]any{"cidrBlock": "10.100.0.0/24", "gateway": "10.100.0.1", "vlan": "vlan100"}),
		podObject("default/vlan", map[string]string{
			"ovn.kubernetes.io/logical_switch": "tagged",
			"ovn.kubernetes.io/ingress_rate":   "30",
			"ovn.kubernetes.io/egress_rate":    "10",
			"ovn.kubernetes.io/mirror":         "true",
			"ovn.kubernetes.io/routes":         `[{"dst":"203.0.113.0/24","gw":"10.100.0.9"}]`,
		}),
		podObject("default/dual", nil),
	)}
}

// checked is a pod and what its ADD answered.
type checked struct {
	*testbed.Pod
	conf string // with prevResult, as CHECK gets it
	host string
	ips  []string
}

func addChecked(p *testbed.Pod) *checked {
	a := p.CNI("ADD", ownConf).Must()
	return &checked{Pod: p, conf: withPrev(ownConf, a.Stdout), host: hostIf(p, "eth0"), ips: a.IPs()}
}

// withPrev is a configuration as CHECK gets it.
func withPrev(conf string, result []byte) string {
	return strings.TrimSuffix(conf, "}") + `,"prevResult":` + string(result) + "}"
}

func (c *checked) check() *cni.Error { return c.CNI("CHECK", c.conf).Err() }

// bench is a node with the two pods. vars are the words that a tampering's
// lines may hold.
type checkBench struct {
	t      *testing.T
	n      *testbed.Node
	agent  *testbed.Agent
	pods   map[string]*checked
	vars   map[string]string
	mended int
	since  int // bytes of the agent's log at the last do
}

func newCheckBench(t *testing.T) *checkBench {
	n := testbed.New(t)
	for name, yaml := range checkObjects() {
		n.WriteObjects(name, yaml)
	}
	b := &checkBench{t: t, n: n, agent: n.Agent(), pods: map[string]*checked{}, vars: map[string]string{}}
	b.agent.WaitReady()
	b.attach("vlan")
	b.attach("dual")
	for _, subnet := range []string{"ovn-default", "tagged"} {
		port := n.OVS.Vsctl("--bare", "--columns=name", "find", "Interface", "external_ids:fairlead-gateway="+subnet)
		require.NotEmpty(t, port)
		b.vars["GW-"+subnet] = port
	}
	return b
}

func (b *checkBench) attach(name string) {
	c := addChecked(b.n.NewPod(name))
	b.pods[name] = c
	if name == "vlan" {
		b.vars["HOST"], b.vars["IP"] = c.host, c.ips[0]
		b.vars["MAC"], _ = linkOf(b.t, c, "eth0")["address"].(string)
		b.vars["ID"], b.vars["NETNS"] = c.ContainerID, c.Netns()
		return
	}
	b.vars["DHOST"], b.vars["DIP4"], b.vars["DIP6"] = c.host, c.ips[0], c.ips[1]
}

// rows finds the rows of the pod with rates anew: the agent may have replaced
// them. What is not there keeps its old name.
func (b *checkBench) rows() {
	for name, words := range map[string]string{
		"PORT": "--bare --columns=_uuid find Port name={HOST}", "QOS": "--bare --columns=_uuid find QoS external_ids:port={HOST}",
		"QUEUE": "--bare --columns=_uuid find Queue external_ids:port={HOST}",
	} {
		if out := b.n.OVS.Vsctl(strings.Fields(b.expand(words))...); out != "" {
			b.vars[name] = out
		}
	}
}

// renew is DEL and ADD: the repair of what cannot be mended by hand.
func (b *checkBench) renew(name string) {
	b.pods[name].CNI("DEL", ownConf).Must()
	b.pods[name].Delete()
	b.attach(name)
}

// do runs lines: "vlan: ip ..." in the pod, "node: ip ..." on the node, "db:
// ..." is for ovs-vsctl. Words are split at spaces; {NAME} is replaced.
func (b *checkBench) do(lines string) {
	b.t.Helper()
	b.since = len(b.log())
	b.rows()
	for line := range strings.Lines(lines) {
		where, rest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		for i, w := range words {
			words[i] = b.expand(w)
		}
		switch where {
		case "node":
			b.n.Run(words...)
		case "db":
			b.n.OVS.Vsctl(words...)
		default:
			b.pods[where].Run(words...)
		}
	}
}

func (b *checkBench) expand(s string) string {
	for name, value := range b.vars {
		s = strings.ReplaceAll(s, "{"+name+"}", value)
	}
	return s
}

// finds waits until CHECK sees the change: ovs-vsctl is done before the agent's
// replica of the database is. What the agent puts right by itself may be so
// before CHECK looks: then it has said what it found.
func (b *checkBench) finds(pod, says string) {
	b.t.Helper()
	var e *cni.Error
	says = b.expand(says)
	eventually(b.t, func() string {
		if b.putRight(says) {
			e = nil
			return ""
		}
		if e = b.pods[pod].check(); e == nil || !strings.Contains(e.Msg+e.Details, says) {
			return fmt.Sprintf("%q is not found: %+v", says, e)
		}
		return ""
	})
	if e != nil {
		require.Equal(b.t, uint(106), e.Code, "%+v", e)
	}
}

// putRight tells that the agent has said so since do was called last.
func (b *checkBench) putRight(says string) bool {
	said, err := json.Marshal(says) // as in a log line
	require.NoError(b.t, err)
	return strings.Contains(b.log()[b.since:], strings.Trim(string(said), `"`))
}

func (b *checkBench) log() string {
	log, err := os.ReadFile(b.agent.Log)
	require.NoError(b.t, err)
	return string(log)
}

// clean waits until CHECK finds nothing.
func (b *checkBench) clean(pod string) {
	b.t.Helper()
	eventually(b.t, func() string {
		if e := b.pods[pod].check(); e != nil {
			return fmt.Sprintf("still not as it was: %+v", *e)
		}
		return ""
	})
}

// itself as mend: the agent puts it right.
const itself = "itself"

// tampering is one change behind the agent's back. mend is how to undo it by
// hand, or empty: then only DEL and ADD help.
type tampering struct {
	name string
	pod  string // whose CHECK must fail
	do   string
	says string
	mend string
}

const remakeRoutes = `
	vlan: ip route replace default via 10.100.0.1 dev eth0
	vlan: ip route replace 203.0.113.0/24 via 10.100.0.9 dev eth0`

var linkTamperings = []tampering{
	{"extra address", "vlan", "vlan: ip addr add 10.100.0.77/24 dev eth0", "10.100.0.77/24", "vlan: ip addr del 10.100.0.77/24 dev eth0"},
	{"extra address of another net", "vlan", "vlan: ip addr add 192.0.2.1/32 dev eth0", "192.0.2.1/32", "vlan: ip addr del 192.0.2.1/32 dev eth0"},
	{"missing address", "vlan", "vlan: ip addr del {IP} dev eth0", "address {IP} is missing", "vlan: ip addr add {IP} dev eth0" + remakeRoutes},
	{"missing IPv6 address", "dual", "dual: ip addr del {DIP6} dev eth0", "address {DIP6} is missing", "dual: ip addr add {DIP6} dev eth0 nodad"},
	{"MTU in the pod", "vlan", "vlan: ip link set eth0 mtu 1300", "eth0: MTU in the pod is 1300", "vlan: ip link set eth0 mtu 1400"},
	{"MTU on the host", "vlan", "node: ip link set {HOST} mtu 1300", "MTU of link {HOST} is 1300", "node: ip link set {HOST} mtu 1400"},
	{"MAC", "vlan", "vlan: ip link set eth0 address 02:00:00:00:99:99", "eth0: MAC in the pod is 02:00:00:00:99:99", "vlan: ip link set eth0 address {MAC}"},
	{"pod link down", "vlan", "vlan: ip link set eth0 down", "eth0: link in the pod is down", "vlan: ip link set eth0 up" + remakeRoutes},
	{"host link down", "vlan", "node: ip link set {HOST} down", "link {HOST} is down", "node: ip link set {HOST} up"},
	{"pod link renamed", "vlan", "vlan: ip link set eth0 down\n vlan: ip link set eth0 name eth9", "is called eth9", "vlan: ip link set eth9 name eth0\n vlan: ip link set eth0 up" + remakeRoutes},
	{"pod link removed", "vlan", "vlan: ip link del eth0", "eth0: link is missing in the pod", ""},
	{"host link removed", "vlan", "node: ip link del {HOST}", "link {HOST} is missing", ""},
	{"host link in another group", "vlan", "node: ip link set {HOST} group 7", "group of link {HOST}", ""},
	{"extra route", "vlan", "vlan: ip route add 192.0.2.0/24 via 10.100.0.66", "route 192.0.2.0/24 via 10.100.0.66 (metric 0) is not ours", "vlan: ip route del 192.0.2.0/24"},
	{"missing route", "vlan", "vlan: ip route del 203.0.113.0/24", "route 203.0.113.0/24 via 10.100.0.9 is missing", remakeRoutes},
	{"changed route", "vlan", "vlan: ip route replace 203.0.113.0/24 via 10.100.0.66", "route 203.0.113.0/24 via 10.100.0.9 is missing", remakeRoutes},
	{"missing connected route", "vlan", "vlan: ip route del 10.100.0.0/24", "route 10.100.0.0/24 of address {IP} is missing", "vlan: ip addr del {IP} dev eth0\n vlan: ip addr add {IP} dev eth0" + remakeRoutes},
	{"default route changed", "vlan", "vlan: ip route replace default via 10.100.0.66", "route 0.0.0.0/0 via 10.100.0.1 is missing", remakeRoutes},
	{"IPv6 default route changed", "dual", "dual: ip -6 route replace default via fd00:10:16::66 dev eth0", "route ::/0", "dual: ip -6 route replace default via fd00:10:16::1 dev eth0"},
	{"second default route", "vlan", "vlan: ip route add default via 10.100.0.66 metric 5", "via 10.100.0.66 (metric 5)", "vlan: ip route del default via 10.100.0.66 metric 5"},
	{"halves of the default route", "dual", "dual: ip route add 0.0.0.0/1 via 10.16.0.66", "0.0.0.0/1", "dual: ip route del 0.0.0.0/1"},
	{
		"disable_ipv6", "dual", "dual: sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1", "disable_ipv6 is 1", `
		dual: sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0
		dual: ip addr add {DIP6} dev eth0 nodad
		dual: ip -6 route replace default via fd00:10:16::1 dev eth0`,
	},
	{"accept_ra", "vlan", "vlan: sysctl -qw net.ipv6.conf.eth0.accept_ra=2", "accept_ra is 2", "vlan: sysctl -qw net.ipv6.conf.eth0.accept_ra=0"},
}

var switchTamperings = []tampering{
	{"OVS port removed", "vlan", "db: del-port {HOST}", "port {HOST} is missing", itself},
	{
		"moved to another bridge", "vlan",
		"db: add-br br-x -- set bridge br-x datapath_type=netdev -- remove bridge br-int ports {PORT} -- add bridge br-x ports {PORT}",
		"bridge of port {HOST} is br-x", "db: remove bridge br-x ports {PORT} -- add bridge br-int ports {PORT} -- del-br br-x",
	},
	{"tag changed", "vlan", "db: set Port {HOST} tag=101", "tag of port {HOST} is 101", itself},
	{"tag removed", "vlan", "db: clear Port {HOST} tag", "tag of port {HOST} is 0", itself},
	{"trunks set", "vlan", "db: set Port {HOST} trunks=1,2", "trunks of port {HOST}", itself},
	{"vlan_mode set", "vlan", "db: set Port {HOST} vlan_mode=native-tagged", "vlan_mode of port {HOST}", itself},
	{"QoS removed", "vlan", "db: clear Port {HOST} qos", "port {HOST} has no QoS", itself},
	{"QoS of a pod that has none", "dual", "db: set Port {DHOST} qos=@q -- --id=@q create QoS type=linux-htb", "port {DHOST} has a QoS", itself},
	{"QoS type changed", "vlan", "db: set QoS {QOS} type=linux-hfsc", "QoS type of port {HOST}", itself},
	{"max-rate changed", "vlan", "db: set QoS {QOS} other_config:max-rate=9000000", "max-rate is \"9000000\"", itself},
	{"queue removed", "vlan", "db: clear QoS {QOS} queues", "queue 0 of port {HOST}", itself},
	{"queue's max-rate changed", "vlan", "db: set Queue {QUEUE} other_config:max-rate=9000000", "Queue other_config of port {HOST}: max-rate", itself},
	{"policing rate changed", "vlan", "db: set Interface {HOST} ingress_policing_rate=0", "ingress_policing_rate of port {HOST} is 0", itself},
	{"policing burst changed", "vlan", "db: set Interface {HOST} ingress_policing_burst=1", "ingress_policing_burst of port {HOST} is 1", itself},
	{"mirror selection removed", "vlan", "db: clear Mirror m0 select_dst_port", "mirroring of port {HOST} is false", "db: add Mirror m0 select_dst_port {PORT}"},
}

var gatewayTamperings = []tampering{
	{"gateway address removed", "dual", "node: ip addr del 10.16.0.1/16 dev {GW-ovn-default}", "10.16.0.1/16", itself},
	{"gateway's IPv6 address removed", "dual", "node: ip addr del fd00:10:16::1/112 dev {GW-ovn-default}", "fd00:10:16::1/112", itself},
	{"gateway link down", "vlan", "node: ip link set {GW-tagged} down", "{GW-tagged}", itself},
	{"gateway port's tag", "vlan", "db: set Port {GW-tagged} tag=7", "port {GW-tagged}: tag is 7", itself},
	{"ip_forward off", "dual", "node: sysctl -qw net.ipv4.ip_forward=0", "ip_forward is 0", itself},
	{"IPv6 forwarding off", "dual", "node: sysctl -qw net.ipv6.conf.all.forwarding=0", "forwarding is 0", itself},
	{"masquerade emptied", "dual", "node: nft flush set inet fairlead ovn40subnets-nat", "set ovn40subnets-nat lacks 10.16.0.0/16", itself},
	{"gateway port removed", "vlan", "db: del-port {GW-tagged}", "{GW-tagged} is missing", itself},
}

// TestCheckFindsTampering changes one thing at a time with ip, sysctl,
// ovs-vsctl and nft: CHECK names it, the neighbour's does not (unless they
// share the thing), and after the repair it is clean.
func TestCheckFindsTampering(t *testing.T) {
	t.Parallel()
	b := newCheckBench(t)
	b.clean("vlan")
	b.clean("dual")
	found := 0
	for _, list := range []func() []tampering{
		func() []tampering { return linkTamperings },
		func() []tampering { return switchTamperings },
		b.everyExternalID,
	} {
		for _, c := range list() {
			b.find(c)
			other := map[string]string{"vlan": "dual", "dual": "vlan"}[c.pod]
			require.Nil(t, b.pods[other].check(), "%s: the neighbour has nothing to do with it", c.name)
			b.repair(c)
			found++
		}
	}
	for _, c := range gatewayTamperings {
		b.find(c)
		b.repair(c)
		found++
	}
	b.mendsItself("node: nft flush chain inet fairlead nat-postrouting", "masquerade")
	b.mendsItself("node: nft delete table inet fairlead", "masquerade")
	t.Logf("%d tamperings found", found)
	require.GreaterOrEqual(t, found, 24)
}

// mendsItself: the agent hears of what was removed of its table, and CHECK, which
// may see it before, is content again.
func (b *checkBench) mendsItself(tamper, rule string) {
	b.t.Helper()
	table := func() string {
		out, _ := b.n.Try("nft", "-s", "list", "table", "inet", "fairlead")
		return out
	}
	was := table()
	require.Contains(b.t, was, rule)
	b.do(tamper)
	eventually(b.t, func() string {
		if now := table(); now != was {
			return "the table is not as it was:\n" + now
		}
		if e := b.pods["dual"].check(); e != nil {
			return e.Msg + e.Details
		}
		return ""
	})
}

// everyExternalID changes each key that the port carries.
func (b *checkBench) everyExternalID() (out []tampering) {
	for _, key := range []string{"iface-id", "vendor", "container_id", "pod_name", "pod_namespace", "pod_netns", "ip", "mac", "ifname", "network", "subnet", "default"} {
		was := b.n.OVS.Vsctl("get", "Interface", b.vars["HOST"], "external_ids:"+key)
		out = append(out, tampering{
			"external_ids " + key, "vlan", "db: set Interface {HOST} external_ids:" + key + "=other",
			"external_ids of port {HOST}: " + key + " is \"other\"",
			"db: set Interface {HOST} external_ids:" + key + "=" + was,
		})
	}
	return append(out, tampering{
		"external_ids removed", "vlan", "db: remove Interface {HOST} external_ids iface-id", "iface-id is \"\"",
		"db: set Interface {HOST} external_ids:iface-id=vlan.default",
	})
}

func (b *checkBench) find(c tampering) {
	b.t.Helper()
	b.t.Log(c.name)
	b.do(c.do)
	b.finds(c.pod, c.says)
}

func (b *checkBench) repair(c tampering) {
	b.t.Helper()
	switch c.mend {
	case "":
		b.renew(c.pod)
	case itself:
	default:
		b.do(c.mend)
	}
	b.clean(c.pod)
	if b.mended++; c.mend == itself && c.pod == "vlan" && b.mended%4 == 0 {
		b.renew(c.pod) // or the agent takes us for a program that fights it
	}
}

// TestCheckKnowsTheNamespace: a path that names another namespace than at ADD
// is drift, and a DEL by that path leaves the new namespace alone.
func TestCheckKnowsTheNamespace(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := addChecked(n.NewPod("p"))
	require.Nil(t, c.check())
	name := strings.TrimPrefix(c.Netns(), "/run/netns/")
	n.Run("ip", "netns", "del", name)
	n.Run("ip", "netns", "add", name)
	e := c.CNI("CHECK", c.conf).MustCode(106)
	require.Contains(t, e.Msg+e.Details, c.Netns())
	require.Contains(t, e.Msg+e.Details, "another namespace")
	out, err := n.TryFairlead("check", "default/p")
	require.Error(t, err, out)
	c.CNI("DEL", ownConf).Must()
	c.CNI("CHECK", c.conf).MustCode(3)
	c.CNI("ADD", ownConf).Must()
	c.CNI("DEL", ownConf).Must()
}

// TestCheckRaisesNoFalseAlarm asks clean pods many times: at once after ADD, in
// a row, after the agent's and after the database's restart.
func TestCheckRaisesNoFalseAlarm(t *testing.T) {
	t.Parallel()
	b := newCheckBench(t)
	quiet := func(when string) {
		t.Helper()
		for name, c := range b.pods {
			require.Nil(t, c.check(), "%s: %s", when, name)
		}
	}
	quiet("after ADD")
	rounds := 50
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		rounds = 500
	}
	for range rounds {
		quiet("in a row")
	}
	for range 10 {
		b.renew("vlan")
		quiet("right after ADD")
	}
	b.agent.Kill()
	b.agent = b.n.Agent()
	quiet("right after the agent's restart")

	b.n.OVS.KillServer()
	// The agent may take a moment to see it; from then on it cannot tell.
	eventually(t, func() string {
		if b.pods["dual"].check() == nil {
			return "CHECK is clean without a database"
		}
		return ""
	})
	e := b.pods["dual"].CNI("CHECK", b.pods["dual"].conf).MustCode(11)
	require.Contains(t, e.Msg+e.Details, "OVSDB")
	b.n.OVS.StartServer()
	b.agent.WaitReady()
	quiet("after the database's restart")
	b.renew("dual")
	quiet("after ADD on the new database")

	// What follows takes the agent a moment to repair; then nothing may be left
	// to find.
	for when, lose := range map[string]func(){
		"conf.db lost": b.n.OVS.LoseConfDB,
		"ovs-vswitchd restarted": func() {
			b.n.OVS.KillVswitchd()
			b.n.OVS.StartVswitchd()
		},
		"journal lost": func() {
			b.agent.Stop()
			b.n.Run("sh", "-c", "rm /var/lib/fairlead/*")
			b.agent = b.n.Agent()
		},
	} {
		lose()
		b.agent.WaitReady()
		b.clean("vlan")
		b.clean("dual")
		quiet(when)
	}
}

// TestCheckComparesWithTheRuntimesResult: addresses in prevResult that were
// never given are drift; a runtime that lost its result is not punished.
func TestCheckComparesWithTheRuntimesResult(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := n.NewPod("p")
	var result map[string]any
	p.CNI("ADD", ownConf).Decode(&result)
	result["ips"].([]any)[0].(map[string]any)["address"] = "10.16.77.77/16"
	forged, err := json.Marshal(result)
	require.NoError(t, err)
	e := p.CNI("CHECK", withPrev(ownConf, forged)).MustCode(106)
	require.Contains(t, e.Msg+e.Details, "10.16.77.77/16")
	p.CNI("CHECK", ownConf).Must()
	out := n.Fairlead("check", "default/p", "-o", "json")
	require.Contains(t, out, `"ok": true`)
	p.Run("ip", "link", "set", "eth0", "mtu", "1234")
	out, err = n.TryFairlead("check", "default/p", "-o", "json")
	require.Error(t, err)
	require.Contains(t, err.Error(), "eth0: MTU in the pod is 1234")
	_ = out
	p.CNI("DEL", ownConf).Must()
}

// TestCheckFollowsTheChain: what a later plugin of the chain changed is as it
// should be, in our own list and in the runtime's; a change of that is drift.
func TestCheckFollowsTheChain(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	const tuned = `{"cniVersion":"1.1.0","name":"tuned","type":"multus","delegates":[{"cniVersion":"1.1.0","name":"list",` +
		`"plugins":[{"type":"kube-ovn"},{"type":"tuning","mac":"02:00:00:00:00:77"}]}]}`
	p := n.NewPod("own")
	a := p.CNI("ADD", tuned).Must()
	require.Contains(t, p.Run("ip", "link", "show", "eth0"), "02:00:00:00:00:77")
	p.CNI("CHECK", withPrev(tuned, a.Stdout)).Must()
	p.Run("ip", "link", "set", "eth0", "mtu", "1200")
	e := p.CNI("CHECK", withPrev(tuned, a.Stdout)).MustCode(106)
	require.Contains(t, e.Details, "eth0: MTU in the pod is 1200, not 1400")
	p.CNI("DEL", tuned).Must()
	tunedMTU(t, n)

	n.Run("sh", "-c", `echo '{"cniVersion":"1.1.0","name":"theirs","plugins":[{"type":"fairlead"},`+
		`{"type":"tuning","mac":"02:00:00:00:00:78","mtu":1200,"args":{"cni":{"mtu":1300}}}]}' > /etc/cni/net.d/10.conflist`)
	q := n.NewPod("theirs")
	n.CNITool("/etc/cni/net.d", nil, "add", "theirs", q.Netns()).Must()
	n.CNITool("/etc/cni/net.d", nil, "check", "theirs", q.Netns()).Must()
	require.Contains(t, q.Run("ip", "link", "show", "eth0"), "mtu 1300")
	q.Run("ip", "link", "set", "eth0", "mtu", "1310")
	wrong := n.CNITool("/etc/cni/net.d", nil, "check", "theirs", q.Netns())
	require.Contains(t, string(wrong.Stdout)+wrong.Stderr, "MTU in the pod is 1310, not 1300")
	q.Run("ip", "link", "set", "eth0", "mtu", "1300", "address", "02:00:00:00:00:79")
	require.NotNil(t, n.CNITool("/etc/cni/net.d", nil, "check", "theirs", q.Netns()).Err())
	n.CNITool("/etc/cni/net.d", nil, "del", "theirs", q.Netns()).Must()
}

// TestCheckFollowsTheRuntimesList: what a plugin behind us in the runtime's list
// changed of a delegate's interface is as it should be; a change of that is drift.
func TestCheckFollowsTheRuntimesList(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.Run("sh", "-c", `echo '{"cniVersion":"1.0.0","name":"mixed","plugins":[{"type":"fairlead","delegates":[`+
		`{"cniVersion":"1.0.0","name":"lan","type":"bridge","bridge":"lan0","ipam":{"type":"host-local","subnet":"10.88.0.0/24"}}]},`+
		`{"type":"tuning","mac":"02:00:00:00:00:78"}]}' > /etc/cni/net.d/10.conflist`)
	p := n.NewPod("mixed")
	check := func() testbed.Answer { return n.CNITool("/etc/cni/net.d", nil, "check", "mixed", p.Netns()) }
	n.CNITool("/etc/cni/net.d", nil, "add", "mixed", p.Netns()).Must()
	require.Contains(t, p.Run("ip", "link", "show", "eth0"), "02:00:00:00:00:78")
	check().Must()
	p.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:79")
	wrong := check()
	require.NotZero(t, wrong.ExitCode)
	require.Contains(t, string(wrong.Stdout)+wrong.Stderr, "02:00:00:00:00:79")
	p.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:78")
	check().Must()
	n.CNITool("/etc/cni/net.d", nil, "del", "mixed", p.Netns()).Must()
}

// tunedMTU: the MTU that `tuning` set is the right one, in both versions of the
// result, of which only 1.1 has an MTU.
func tunedMTU(t *testing.T, n *testbed.Node) {
	t.Helper()
	for _, version := range []string{"1.0.0", "1.1.0"} {
		conf := `{"cniVersion":"` + version + `","name":"mtu","type":"multus","delegates":[{"cniVersion":"` + version + `","name":"list",` +
			`"plugins":[{"type":"kube-ovn"},{"type":"tuning","mtu":1300}]}]}`
		p := n.NewPod("mtu" + version[:3])
		a := p.CNI("ADD", conf).Must()
		p.CNI("CHECK", withPrev(conf, a.Stdout)).Must()
		p.Run("ip", "link", "set", "eth0", "mtu", "1400")
		require.Contains(t, p.CNI("CHECK", withPrev(conf, a.Stdout)).MustCode(106).Details, "eth0: MTU in the pod is 1400, not 1300")
		p.CNI("DEL", conf).Must()
	}
}

// TestCheckBehindSourceRouting: `sbr` moves an interface's routes to a table of
// its own, where they count as there; removed from that they are missing.
func TestCheckBehindSourceRouting(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(
		nadObject("default/k", `{"cniVersion":"1.0.0","name":"k","plugins":[{"type":"kube-ovn","provider":"k.default.ovn",`+
			`"routes":[{"dst":"10.78.0.0/16","gw":"10.20.0.1"}]},{"type":"sbr"}]}`),
		subnetObject("k", map[string]any{"cidrBlock": "10.20.0.0/24", "provider": "k.default.ovn"}),
		podObject("default/p", map[string]string{"k8s.v1.cni.cncf.io/networks": "k"}),
	)})
	c := addChecked(n.NewPod("p"))
	require.Contains(t, c.Run("ip", "route", "show", "table", "100"), "10.78.0.0/16")
	require.Nil(t, c.check())
	c.Run("ip", "route", "del", "10.78.0.0/16", "table", "100")
	require.Contains(t, c.CNI("CHECK", c.conf).MustCode(106).Details, "route 10.78.0.0/16")
	c.CNI("DEL", ownConf).Must()
}
