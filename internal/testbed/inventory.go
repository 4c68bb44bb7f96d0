package testbed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/tombstone"
)

// Inventory is all that a node holds, by kind, each kind as sorted lines. What
// the kernel or Open vSwitch chooses anew each time (indices, UUIDs, counters,
// lifetimes, neighbours) is left out, so that equal states are equal.
type Inventory map[string][]string

// Inventory reads the node with ip, tc, nft, ovs-vsctl and the file system, and
// the agent's records through its socket while one serves. It waits until the
// agent has deleted the links that it put aside (package tombstone): what is to be
// compared with later has none.
func (n *Node) Inventory() (inv Inventory) {
	n.t.Helper()
	require.NoError(n.t, until("deletion of links", func() (err error) {
		inv, err = n.inventory()
		require.NoError(n.t, err)
		for _, l := range inv["node links"] {
			if strings.Contains(l, aside) {
				return errors.New(l)
			}
		}
		return nil
	}))
	return inv
}

// aside is what the line of a link that was put aside has.
var aside = fmt.Sprintf(`"group":"%d"`, tombstone.Group)

func (n *Node) inventory() (Inventory, error) {
	inv := Inventory{}
	if err := inv.readNetns("node", n); err != nil {
		return nil, err
	}
	for _, name := range n.NetnsNames() {
		inv.add("netns", name)
		pod := &Pod{n: n, netns: name}
		if err := inv.readNetns("netns "+name, pod); err != nil {
			return nil, err
		}
	}
	if n.OVS != nil && n.OVS.Running() {
		if err := inv.readOVS(n); err != nil {
			return nil, err
		}
	}
	err := errors.Join(inv.readRecords(n), inv.readFiles(n))
	for _, lines := range inv {
		slices.Sort(lines)
	}
	return inv, err
}

func (inv Inventory) add(kind string, lines ...string) {
	inv[kind] = append(inv[kind], lines...)
}

// A starting process costs more than what it reads, and tests ask often: so one
// shell tells all of a namespace, and asks devices for classes and filters only
// where they have a queueing discipline that takes some.
const netnsScript = `ip -j -d -batch - <<END
addr show
route show table all
rule show
END
ip -6 -j -d rule show
echo == nft
nft --stateless list ruleset
qdiscs=$(tc qdisc show)
asked=' '
while read -r _ kind _ _ dev _; do
	case "$kind $asked" in noqueue* | pfifo_fast* | *" $dev "*) continue ;; esac
	asked="$asked$dev "
	echo == "tc $dev"
	tc class show dev "$dev" || : # it has gone meanwhile
	tc filter show dev "$dev" || :
	echo == "tc $dev ingress"
	tc filter show dev "$dev" ingress 2>/dev/null || :
done <<END
$qdiscs
END
echo == tc
echo "$qdiscs"`

var (
	linkKeys  = []string{"ifname", "mtu", "txqlen", "master", "group", "address", "ifalias", "promiscuity", "up", "kind"}
	routeKeys = []string{"type", "dst", "gateway", "via", "dev", "table", "protocol", "scope", "prefsrc", "metric", "nexthops"}
)

// derivedRoute tells routes that follow from addresses and links.
func derivedRoute(o map[string]any) bool {
	dst, _ := o["dst"].(string)
	return o["table"] == "local" || o["type"] == "multicast" || o["type"] == "anycast" || strings.HasPrefix(dst, "fe80::")
}

// readNetns reads one network namespace.
func (inv Inventory) readNetns(name string, from tryer) error {
	out, err := from.Try("sh", "-ec", netnsScript)
	if err != nil {
		return err
	}
	lists, texts, _ := strings.Cut(out, "== nft\n")
	d := json.NewDecoder(strings.NewReader(lists))
	for _, take := range []func(map[string]any){
		func(o map[string]any) {
			flatten(o)
			inv.add(name+" links", canonical(o, linkKeys))
			inv.add(name+" addresses", addresses(o)...)
		},
		func(o map[string]any) {
			if !derivedRoute(o) {
				inv.add(name+" routes", canonical(o, routeKeys))
			}
		},
		func(o map[string]any) { inv.add(name+" rules", canonical(o, nil)) },
		func(o map[string]any) { inv.add(name+" rules", canonical(o, nil)) }, // IPv6
	} {
		var objects []map[string]any
		if err := d.Decode(&objects); err != nil {
			return fmt.Errorf("what ip says of %s: %w", name, err)
		}
		for _, o := range objects {
			if len(o) > 0 {
				take(o)
			}
		}
	}
	inv.readText(name, texts)
	return nil
}

// unnamed are devices whose MAC is by chance each time that Open vSwitch makes
// them: the datapaths' own, which are never up, and the mirror's output.
var unnamed = []string{"ovs-system", "ovs-netdev", "mirror0"}

// flatten lifts what `ip -d link` nests, and leaves such MACs out.
func flatten(o map[string]any) {
	if flags, ok := o["flags"].([]any); ok {
		o["up"] = slices.Contains(flags, any("UP"))
	}
	if info, ok := o["linkinfo"].(map[string]any); ok {
		o["kind"] = info["info_kind"]
	}
	if name, _ := o["ifname"].(string); slices.Contains(unnamed, name) {
		delete(o, "address")
	}
}

// canonical prints the chosen keys of an object; nil means all.
func canonical(o map[string]any, keys []string) string {
	chosen := o
	if keys != nil {
		chosen = map[string]any{}
		for _, k := range keys {
			if v, ok := o[k]; ok {
				chosen[k] = v
			}
		}
	}
	b, err := json.Marshal(chosen) // sorts the keys
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// addresses lists "eth0 10.0.0.2/24 scope". Link-local IPv6 addresses that
// the kernel makes come and go with carrier.
func addresses(o map[string]any) (out []string) {
	infos, _ := o["addr_info"].([]any)
	for _, i := range infos {
		a, _ := i.(map[string]any)
		if a["family"] == "inet6" && a["scope"] == "link" {
			continue
		}
		out = append(out, fmt.Sprintf("%v %v/%v %v", o["ifname"], a["local"], a["prefixlen"], a["scope"]))
	}
	return out
}

// refcount is a kernel detail of a qdisc.
var refcount = regexp.MustCompile(` refcnt \d+`)

// readText takes what has no useful JSON: the rule set without counters, one line
// per rule, whose place is part of it; and traffic control of each device.
func (inv Inventory) readText(name, texts string) {
	rules, control, _ := strings.Cut(texts, "== tc")
	inv.add(name+" nft", RulesByTable(rules)...)
	for _, section := range strings.Split(control, "== tc") {
		device, lines, _ := strings.Cut(section, "\n")
		for line := range strings.Lines(lines) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "qdisc noqueue ") {
				inv.add(name+" tc", strings.TrimSpace(device+" "+refcount.ReplaceAllString(line, "")))
			}
		}
	}
}

// RulesByTable is what `nft list ruleset` says, each line with its table's name and its number
// there, sorted. Which table comes first means nothing: one that is written as a whole is
// listed last.
func RulesByTable(text string) []string {
	var out []string
	table, at := "", 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "table ") {
			table, at = strings.TrimSuffix(line, " {"), 0
		}
		out = append(out, fmt.Sprintf("%s %03d %s", table, at, line))
		at++
	}
	slices.Sort(out)
	return out
}

// tables are the rows of OVSDB and the columns that are configuration.
var tables = []struct{ name, columns string }{
	{"Bridge", "name,datapath_type,fail_mode,external_ids,other_config,ports,mirrors"},
	{"Port", "name,tag,trunks,vlan_mode,external_ids,other_config,interfaces,qos"},
	{"Interface", "name,type,options,external_ids,other_config,mac,mtu_request,ingress_policing_rate,ingress_policing_burst"},
	{"QoS", "type,other_config,external_ids,queues"},
	{"Queue", "other_config,external_ids"},
	{"Mirror", "name,select_all,select_src_port,select_dst_port,output_port,external_ids"},
}

// zones are ovn-controller's on its bridge: it numbers them anew, and keeps those
// of switches whose ports have gone. It also writes how far it has come, and when.
var zones = regexp.MustCompile(`\["(ct-zone-[^"]*|ovn-nb-cfg|ovn-nb-cfg-ts|ovn-startup-ts|ovn-installed-ts)","\d+"\],?`)

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (inv Inventory) readOVS(n *Node) error {
	args := []string{"ovs-vsctl", "--timeout=20", "--format=json"}
	for _, t := range tables {
		args = append(args, "--", "--columns="+t.columns, "list", t.name)
	}
	out, err := n.Try(append(args, "--", "list-br")...)
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(out))
	for _, t := range tables {
		var rows struct {
			Data []json.RawMessage `json:"data"`
		}
		if err := d.Decode(&rows); err != nil {
			return fmt.Errorf("ovs-vsctl list %s: %w", t.name, err)
		}
		for _, row := range rows.Data {
			inv.add("ovs "+t.name, uuid.ReplaceAllString(zones.ReplaceAllString(string(row), ""), "UUID"))
		}
	}
	inv.readFlows(n, strings.Fields(out[d.InputOffset():]))
	return nil
}

// ofports are numbers that Open vSwitch chooses.
var ofports = regexp.MustCompile(`in_port=[^, ]+`)

// readFlows reads the agent's flows, by their cookies. A bridge that vswitchd has yet
// to take has none.
func (inv Inventory) readFlows(n *Node, bridges []string) {
	for _, bridge := range bridges {
		out, _ := n.Try("ovs-ofctl", "--no-stats", "dump-flows", bridge, "cookie=0x0fa1000000000000/0xffff000000000000")
		for l := range strings.Lines(out) {
			if strings.Contains(l, "actions=") {
				inv.add("ovs flows", bridge+" "+ofports.ReplaceAllString(strings.TrimSpace(l), "in_port=N"))
			}
		}
	}
}

// folders are those whose files are state.
var folders = []string{"/var/lib/fairlead", "/var/lib/cni", "/run/fairlead", "/run/k8s.cni.cncf.io", "/etc/cni/net.d"}

// readFiles lists names, not contents: databases change by being read.
func (inv Inventory) readFiles(n *Node) error {
	for _, folder := range folders {
		root := n.Path(folder)
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil // removed meanwhile, or not there at all
			}
			if err != nil || d.IsDir() || habit(d.Name()) {
				return err
			}
			rel, err := filepath.Rel(root, name)
			inv.add("files", filepath.Join(folder, rel))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// habit tells files that upstream's host-local leaves on purpose, and what an agent writes
// down once it has read the API server.
func habit(name string) bool {
	return name == "lock" || strings.HasPrefix(name, "last_reserved_ip.") || strings.Contains(name, "declared.json")
}

// Diff lists what differs, "+" for what came and "-" for what went.
func (inv Inventory) Diff(after Inventory) []string {
	kinds := map[string]bool{}
	for k := range inv {
		kinds[k] = true
	}
	for k := range after {
		kinds[k] = true
	}
	var out []string
	for k := range kinds {
		for _, line := range minus(after[k], inv[k]) {
			out = append(out, "+ "+k+": "+line)
		}
		for _, line := range minus(inv[k], after[k]) {
			out = append(out, "- "+k+": "+line)
		}
	}
	slices.Sort(out)
	return out
}

// minus is what a has more often than b.
func minus(a, b []string) []string {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	var out []string
	for _, line := range a {
		count[line]--
		if count[line] < 0 {
			out = append(out, line)
		}
	}
	return out
}

// Leaks compares the node with an earlier inventory. Links and OVS follow an
// answered DEL a little later (the reaper, ovs-vswitchd), so it looks again
// until nothing differs, and gives up after a while with the differences.
func (n *Node) Leaks(before Inventory) []string {
	n.t.Helper()
	var diff []string
	look := 0
	_ = until("inventory", func() error {
		if look++; look > 1 {
			time.Sleep(100 * time.Millisecond) // for those who clean up, not for who looks
		}
		after, err := n.inventory()
		if err != nil {
			diff = []string{err.Error()}
			return err
		}
		if diff = before.Diff(after); len(diff) > 0 {
			return fmt.Errorf("%d differences", len(diff))
		}
		return nil
	})
	return diff
}

// RequireNoLeaks fails the test on anything that Leaks finds.
func (n *Node) RequireNoLeaks(before Inventory) {
	n.t.Helper()
	require.Empty(n.t, strings.Join(n.Leaks(before), "\n"))
}
