package e2e

import (
	"bytes"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// The model of package engine's TestUndoModel with all that an engine does not
// have: processes, Open vSwitch, rules, files. Pods have our eth0, with rates and a
// port of the node, and some of four networks: a bridge and a ptp that masquerade,
// which are upstream's programs, and two plugins that do as the dice say. Namespaces
// live, go, or have their path reused; the agent works, has hardly a descriptor
// left, dies in the operation, or is down. Whatever comes, each DEL of a namespace
// that is gone is a success, nobody else is touched, and in the end the node is as
// it was.

// dicePlugin does what the file <type>.<COMMAND> beside it says. Where its answer
// is good an ADD leaves a file, which a DEL removes.
const dicePlugin = `#!/bin/sh
dir=${0%/*}; me=${0##*/}
[ -n "$(cat)" ] || exit 1 # an agent that died has not fed it
if [ "$CNI_COMMAND" = VERSION ]; then echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'; exit; fi
fail() { echo '{"cniVersion":"1.0.0","code":'$1',"msg":"as the dice say"}'; exit 1; }
good() {
	case $CNI_COMMAND in
	ADD) touch $dir/made.$me.$CNI_CONTAINERID ;;
	DEL) rm -f $dir/made.$me.$CNI_CONTAINERID ;;
	esac
	echo "$1"; exit 0
}
case $(cat $dir/$me.$CNI_COMMAND) in
config) fail 7 ;;
refuses) fail 999 ;;
later) fail 11 ;;
junk) good '{{{' ;;
dumb) echo words; exit 1 ;;
killed) kill -9 $$ ;;
hangs)
	echo $CNI_CONTAINERID >>$dir/hanging
	while [ ! -e $dir/go ]; do sleep 0.02; done
	fail 5 ;;
*) good '{"cniVersion":"1.0.0"}' ;;
esac
`

// What plugins may do, and how the agent fares during an operation.
var (
	addWays = []string{"works", "works", "works", "works", "config", "refuses", "junk", "killed", "hangs"}
	delWays = []string{"works", "works", "works", "config", "refuses", "later", "junk", "dumb", "killed", "hangs"}
	moods   = []string{"well", "well", "few descriptors", "dies"}
)

// diced is a node under the model.
type diced struct {
	*testbed.Node
	t     *testing.T
	r     *mathrand.Rand
	dir   string // of the plugins
	a     *testbed.Agent
	near  *testbed.Pod // whom nothing may disturb
	hung  int          // plugins that have been met hanging
	tried []string
}

func (d *diced) pick(from ...string) string { return from[d.r.IntN(len(from))] }

func (d *diced) say(format string, args ...any) {
	d.tried = append(d.tried, fmt.Sprintf(format, args...))
}

func newDiced(t *testing.T, seed uint64, lives int) *diced {
	t.Helper()
	d := &diced{Node: testbed.New(t), t: t, r: mathrand.New(mathrand.NewPCG(seed, 0))}
	d.dir = filepath.Join(d.Dir, "dice")
	require.NoError(t, os.Mkdir(d.dir, 0o755))
	objects := []string{
		subnetObject("ovn-default", map[string]any{"default": true, "natOutgoing": true, "cidrBlock": "10.16.0.0/24"}),
		nadObject("br", `{"cniVersion":"1.0.0","type":"bridge","bridge":"brm","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","subnet":"10.61.0.0/24"}}`),
		nadObject("pt", `{"cniVersion":"0.4.0","type":"ptp","ipMasq":true,"ipMasqBackend":"nftables","ipam":{"type":"host-local","subnet":"10.62.0.0/24"}}`),
		podObject("warm", map[string]string{networksKey: "br,pt"}),
	}
	for _, name := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(dicePlugin), 0o755)) //nolint:gosec // a program
		objects = append(objects, nadObject(name, `{"cniVersion":"1.0.0","type":"`+name+`"}`))
	}
	for i := range lives {
		var networks []string
		for _, at := range d.r.Perm(4)[:1+d.r.IntN(4)] {
			networks = append(networks, []string{"br", "pt", "one", "two"}[at])
		}
		objects = append(objects, podObject(fmt.Sprintf("p%d", i), map[string]string{
			networksKey: strings.Join(networks, ","), "ovn.kubernetes.io/ingress_rate": "30",
		}))
	}
	d.WriteObjects("objects.yaml", together(objects...))
	d.start()
	d.near = d.NewPod("near")
	d.near.CNI("ADD", ownConf).Must()
	warm := d.NewPod("warm") // what is made for all pods stays
	warm.CNI("ADD", d.conf(0)).Must()
	warm.CNI("DEL", d.conf(0)).Must()
	warm.Delete()
	awaitReaper(t, d.Node)
	return d
}

func (d *diced) start() {
	d.t.Helper()
	d.a = d.Agent("--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", d.dir)
	d.a.WaitReady()
}

// conf asks for a port of the node besides.
func (d *diced) conf(life int) string {
	return portsConf(mapping(9000+life, 80, ""))
}

func (d *diced) dice(verb string, ways ...string) {
	d.t.Helper()
	for _, name := range []string{"one", "two"} {
		way := d.pick(ways...)
		require.NoError(d.t, os.WriteFile(filepath.Join(d.dir, name+"."+verb), []byte(way), 0o600))
		d.say("%s of %s: %s", verb, name, way)
	}
}

// hangs tells that another plugin hangs than were met before.
func (d *diced) hangs() bool {
	b, _ := os.ReadFile(filepath.Join(d.dir, "hanging")) // none yet
	all := bytes.Count(b, []byte("\n"))
	anew := all > d.hung
	d.hung = all
	return anew
}

// call carries an operation out while the agent is in some mood. While a plugin
// hangs in it another pod comes and goes.
func (d *diced) call(p *testbed.Pod, op, conf, mood string) testbed.Answer {
	d.t.Helper()
	d.say("%s: %s", op, mood)
	restore := func() {}
	if mood == "few descriptors" {
		restore = limit(d.t, d.a, 1+d.r.IntN(12))
	}
	let := filepath.Join(d.dir, "go")
	require.NoError(d.t, os.RemoveAll(let))
	d.hangs()
	answered := start(func() testbed.Answer { return p.CNI(op, conf) })
	var answer testbed.Answer
	looks := 0
	eventually(d.t, func() string {
		select {
		case answer = <-answered:
			return ""
		default:
		}
		switch looks++; {
		case looks > 100: // for one that hung before this call, of an intent or in the background
			require.NoError(d.t, os.WriteFile(let, nil, 0o600))
		case !d.hangs():
		case mood == "well":
			other := d.NewPod("bystander")
			other.CNI("ADD", ownConf).Must()
			other.CNI("DEL", ownConf).Must()
			other.Delete()
			fallthrough
		case mood == "few descriptors":
			require.NoError(d.t, os.WriteFile(let, nil, 0o600))
		case mood == "dies":
			d.a.Kill()
		}
		return "no answer of " + op
	})
	restore()
	if mood == "dies" {
		d.a.Kill() // at the latest
		d.start()
	}
	return answer
}

// leave has a pod's namespace go, or another take its path.
func (d *diced) leave(p *testbed.Pod) (fate string) {
	d.t.Helper()
	fate = d.pick("lives", "gone", "reused")
	d.say("its namespace: %s", fate)
	switch fate {
	case "gone":
		p.Delete()
	case "reused":
		d.Run("ip", "netns", "del", path.Base(p.Netns()))
		d.Run("ip", "netns", "add", path.Base(p.Netns()))
		p.Run("ip", "link", "add", "eth0", "type", "bridge")
	}
	return fate
}

// life is that of one pod.
func (d *diced) life(i int) {
	d.t.Helper()
	p, conf := d.NewPod(fmt.Sprintf("p%d", i)), d.conf(i)
	d.tried = nil
	d.dice("ADD", addWays...)
	d.dice("DEL", delWays...)
	added := d.call(p, "ADD", conf, d.pick(moods...)).Err()
	d.say("ADD answered %v", added)
	fate := d.leave(p)
	for range 1 + d.r.IntN(2) {
		if d.r.IntN(3) == 0 {
			d.say("DEL while no agent runs")
			d.a.Kill()
			p.CNI("DEL", conf).Must() // it is left for the agent
			d.start()
			continue
		}
		mood := d.pick(moods...)
		e := d.call(p, "DEL", conf, mood).Err()
		d.say("DEL answered %v", e)
		if fate != "lives" && mood == "well" {
			require.Nil(d.t, e, "DEL of a namespace that is gone")
		}
	}
	if fate == "reused" {
		require.Equal(d.t, []string{"eth0", "lo"}, linkNames(d.t, p), "what is there now is somebody else's")
	}
	d.near.CNI("CHECK", ownConf).Must()
	require.NoError(d.t, d.near.Ping("10.16.0.1"))
	if fate != "gone" {
		p.Delete()
	}
	d.call(p, "DEL", conf, "well").Must()
}

// TestUndoModelOfANode: see above.
func TestUndoModelOfANode(t *testing.T) {
	t.Parallel()
	lives := 6
	if soak() {
		lives = 200
	}
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	d := newDiced(t, seed, lives)
	before := d.Inventory()
	done := false
	defer func() {
		if !done {
			t.Log(strings.Join(d.tried, "; "))
		}
	}()
	for i := range lives {
		d.life(i)
	}

	// The plugins come to their senses: nothing is left that anything had made.
	d.dice("DEL", "works")
	d.a.Kill()
	d.start()
	eventually(t, func() string {
		if leaks := d.Leaks(before); len(leaks) > 0 {
			return fmt.Sprint(leaks)
		}
		made, err := filepath.Glob(filepath.Join(d.dir, "made.*"))
		require.NoError(t, err)
		return strings.Join(made, " ")
	})
	done = true
}
