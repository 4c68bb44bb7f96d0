package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/fairlead/fairlead/internal/testbed"
)

// heldJournal is what an agent of journal schema 1 wrote of kindsNode's pods.
const heldJournal = "../../internal/journal/testdata/schema1.db.gz"

// kinds is a node whose pods have attachments of every kind.
type kinds struct {
	*plugged
	r       *recorders
	q, s, b *testbed.Pod
	added   []byte // p's result
}

const journalFile = "/var/lib/fairlead/agent.db"

// kindsConf opens a port of the node to pod p.
var kindsConf = portsConf(mapping(8080, 80))

// notes are pod p's: what could differ from node to node is fixed.
func (k *kinds) notes(networks, rate string) map[string]string {
	return map[string]string{
		networksKey:                     networks,
		"ovn.kubernetes.io/ip_address":  "10.16.0.9",
		"ovn.kubernetes.io/mac_address": "02:00:00:00:00:09", "ovn.kubernetes.io/ingress_rate": rate,
		"ovn.kubernetes.io/mirror":                   "true",
		"own.default.ovn.kubernetes.io/ip_address":   "10.20.0.9",
		"own.default.ovn.kubernetes.io/mac_address":  "02:00:00:00:00:19",
		"own.default.ovn.kubernetes.io/routes":       `[{"dst":"10.21.0.0/16","gw":"10.20.0.1"}]`,
		"late.default.ovn.kubernetes.io/ip_address":  "10.30.0.9",
		"late.default.ovn.kubernetes.io/mac_address": "02:00:00:00:00:29",
		"late.default.ovn.kubernetes.io/egress_rate": "5",
	}
}

const (
	kindsNetworks = `{"name":"mac","mac":"02:00:00:00:00:39","default-route":["10.63.0.1"]},{"name":"own"}`
	kindsLate     = `{"name":"late","default-route":["10.30.0.1"]}`
)

func (k *kinds) want(networks, rate string) {
	k.t.Helper()
	k.n.WriteObjects("p.yaml", podObject("p", k.notes(networks, rate)))
}

// stuck writes what pod s asks for.
func (k *kinds) stuck(networks string) {
	k.t.Helper()
	k.n.WriteObjects("s.yaml", podObject("s", map[string]string{
		networksKey: networks, "ovn.kubernetes.io/ip_address": "10.16.0.10", "ovn.kubernetes.io/mac_address": "02:00:00:00:00:0a",
	}))
}

// kindsNode attaches pod p to our own networks, to a delegate's, which took the
// default route, and to one that came later and has it now; q has addresses of
// ours from a plugin of the runtime's; s has a network that should be gone, and b
// one that neither came nor goes.
func kindsNode(t *testing.T) *kinds {
	t.Helper()
	k := &kinds{plugged: &plugged{t: t, n: testbed.New(t)}}
	k.r = installRecorders(t, k.n, "stuck", "bad")
	bond(k.n)
	named := func(name string) string {
		return nadObject(name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":%q}`, name, name))
	}
	k.n.WriteObjects("objects.yaml", together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		ownNetwork("own", "10.20.0.0/24"), ownNetwork("late", "10.30.0.0/24"), lan(), named("stuck"), named("bad"),
		nadObject("mac", `{"cniVersion":"1.0.0","name":"mac","type":"macvlan","master":"bond0","capabilities":{"mac":true},
			"ipam":{"type":"host-local","subnet":"10.63.0.0/24"}}`),
		podObject("q", map[string]string{"lan.default.kubernetes.io/ip_address": "10.62.0.9,fd00:62::9"}),
		podObject("warm", map[string]string{"ovn.kubernetes.io/mirror": "true"}), podObject("b", map[string]string{networksKey: "bad"})))
	k.stuck("stuck")
	k.want("["+kindsNetworks+"]", "30")
	k.agent = k.n.Agent(k.r.args()...)
	k.agent.WaitReady()
	return k
}

// attach makes the attachments.
func (k *kinds) attach() {
	k.t.Helper()
	k.p, k.q, k.s, k.b = k.n.NewPod("p"), k.n.NewPod("q"), k.n.NewPod("s"), k.n.NewPod("b")
	k.added = k.p.CNI("ADD", kindsConf).Must().Stdout
	k.want("["+kindsNetworks+","+kindsLate+"]", "30")
	k.await("eth0", "lo", "net1", "net2", "net3")
	require.Equal(k.t, []string{"default via 10.30.0.1 dev net3"}, trimProto(defaultRoutes(k.p, "-4")))
	k.q.CNI("ADD", lentBridge).Must()
	k.s.CNI("ADD", ownConf).Must()
	k.r.order("stuck", "DEL", "fail 5 it stays")
	k.stuck("")
	eventually(k.t, func() string {
		if out, _ := k.n.TryFairlead("describe", "pod", "default/s"); !strings.Contains(out, "it stays") {
			return out
		}
		return ""
	})
	k.r.order("bad", "ADD", "fail 142 not this one")
	k.r.order("bad", "DEL", "fail 5 nor that")
	k.b.CNI("ADD", ownConf).MustCode(142)
}

// heldRow is what this test looks at in a row of the records, and the row.
type heldRow struct {
	Key   struct{ Container string }
	Pod   struct{ Name string }
	Netns struct {
		Cookie uint64
		BootID string
	}
	Specs []struct{ Exec struct{ Path []string } }
	value []byte // 4 bytes of checksum, flags, JSON
}

// heldIn reads the rows of a journal that nobody has open, by pod.
func heldIn(t *testing.T, path string) map[string]heldRow {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	out := map[string]heldRow{}
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("records")).ForEach(func(_, v []byte) error {
			h := heldRow{value: bytes.Clone(v)}
			require.NoError(t, json.Unmarshal(v[5:], &h))
			out[h.Pod.Name] = h
			return nil
		})
	}))
	return out
}

// of is the row of the same attachment on this node, whose own row is now:
// container, namespace and the folder of plugins (folders) have other names.
func (h heldRow) of(now heldRow, folders [2]string) (key, value []byte) {
	var replace []string
	for n := len(h.Key.Container); n >= 6; n-- { // whole, and cut as in names of links and namespaces
		replace = append(replace, h.Key.Container[:n], now.Key.Container[:n])
	}
	replace = append(replace, fmt.Sprintf(`"cookie":%d,`, h.Netns.Cookie), fmt.Sprintf(`"cookie":%d,`, now.Netns.Cookie),
		h.Netns.BootID, now.Netns.BootID, folders[0], folders[1])
	text := strings.NewReplacer(replace...).Replace(string(h.value[5:]))
	key = []byte(now.Key.Container + "/eth0")
	value = append(bytes.Clone(h.value[:5]), text...)
	sum := crc32.MakeTable(crc32.Castagnoli)
	binary.BigEndian.PutUint32(value, crc32.Update(crc32.Checksum(key, sum), sum, value[4:]))
	return key, value
}

// downgrade puts the held journal in the place of the node's.
func (k *kinds) downgrade() {
	k.t.Helper()
	path := k.n.Path(journalFile)
	now := heldIn(k.t, path)
	file, err := os.Open(heldJournal)
	require.NoError(k.t, err)
	defer func() { _ = file.Close() }()
	unzip, err := gzip.NewReader(file)
	require.NoError(k.t, err)
	data, err := io.ReadAll(unzip)
	require.NoError(k.t, err)
	require.NoError(k.t, os.WriteFile(path, data, 0o600))
	former := heldIn(k.t, path)
	require.Len(k.t, former, 4)
	require.Len(k.t, now, 4)
	folders := [2]string{former["b"].Specs[0].Exec.Path[1], now["b"].Specs[0].Exec.Path[1]}
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(k.t, err)
	defer func() { require.NoError(k.t, db.Close()) }()
	require.NoError(k.t, db.Update(func(tx *bbolt.Tx) error {
		rows := tx.Bucket([]byte("records"))
		for pod, h := range former {
			require.NoError(k.t, rows.Delete([]byte(h.Key.Container+"/eth0")))
			key, value := h.of(now[pod], folders)
			require.NoError(k.t, rows.Put(key, value))
		}
		return nil
	}))
}

// TestJournalOfTheFormerSchema: an agent that finds the journal of one that wrote
// flat specs goes on with its pods: they are as they were, CHECK proves them,
// they follow their annotations, the default route goes back, and DEL removes
// everything.
func TestJournalOfTheFormerSchema(t *testing.T) {
	t.Parallel()
	k := kindsNode(t)
	warm := k.n.NewPod("warm")
	for _, conf := range []string{lentBridge, ownConf} { // a plugin's bridge and the switch's mirror stay for good
		warm.CNI("ADD", conf).Must()
		warm.CNI("DEL", conf).Must()
	}
	warm.Delete()
	before := k.n.Inventory()
	k.attach()
	links := map[string]any{}
	for _, name := range []string{"eth0", "net1", "net2", "net3"} {
		links[name] = k.index(name)
	}
	k.agent.Stop()
	k.downgrade()
	k.agent = k.n.Agent(k.r.args()...)
	k.agent.WaitReady()
	require.Empty(t, k.n.Run("sh", "-c", "ls /var/lib/fairlead | grep corrupt || true"))

	check := func() { t.Helper(); k.p.CNI("CHECK", withPrev(kindsConf, k.added)).Must() }
	check()
	for name, index := range links {
		require.Equal(t, index, k.index(name), name)
	}
	k.q.CNI("CHECK", lentBridge)
	require.Equal(t, []string{"10.62.0.9", "fd00:62::9"}, heldBy(t, k.n, k.q, "eth0"))
	require.NoError(t, k.p.Ping("10.16.0.1"))
	require.Contains(t, k.n.Fairlead("describe", "pod", "default/s"), "it stays")

	k.want("["+kindsNetworks+"]", "40")
	k.await("eth0", "lo", "net1", "net2")
	require.Equal(t, []string{"default via 10.63.0.1 dev net1"}, trimProto(defaultRoutes(k.p, "-4")), "from which it was taken")
	eventually(t, func() string {
		if out := k.n.OVS.Vsctl("--bare", "--columns=other_config", "find", "QoS", "external_ids:port="+hostIf(k.p, "eth0")); out != "max-rate=40000000" {
			return out
		}
		return ""
	})
	check()

	require.NoError(t, os.Remove(filepath.Join(k.r.dir, "stuck.DEL")))
	require.Contains(t, k.n.Fairlead("detach", "--force", "--container-id", k.b.ContainerID), "nor that")
	k.s.CNI("DEL", ownConf).Must()
	k.q.CNI("DEL", lentBridge).Must()
	k.p.CNI("DEL", kindsConf).Must()
	for _, p := range []*testbed.Pod{k.p, k.q, k.s, k.b} {
		p.Delete()
	}
	k.n.RequireNoLeaks(before)
}
