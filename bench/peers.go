package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bridgeConf asks for an address, a gateway on the host, a default route, MTU
// 1400, no NAT: what our own network gives too.
const bridgeConf = `{"cniVersion":"1.1.0","name":"bench","type":"bridge","bridge":"cni0","mtu":1400,
"isGateway":true,"ipMasq":false,"ipam":` + ipamConf + `}`

const ipamConf = `{"type":"host-local","ranges":[[{"subnet":"10.20.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}`

// bridgeSide is containernetworking's bridge + host-local on a node without
// Open vSwitch.
func (b *bench) bridgeSide(pods int) (*plugin, error) {
	n, err := b.newNode(pods)
	if err != nil {
		return nil, err
	}
	p := &plugin{node: n, path: b.tool("bridge"), conf: []byte(bridgeConf)}
	if err := p.once(); err != nil { // it makes the bridge, which stays
		return nil, errors.Join(err, n.close())
	}
	return p, nil
}

// once attaches one pod and detaches it.
func (p *plugin) once() error {
	first := pick(p, 1)
	p.node.renew(first)
	for _, command := range []string{"ADD", "DEL"} {
		if _, err := batch(p, command, first, 1); err != nil {
			return err
		}
	}
	return nil
}

// floorSide is the floor of row 11, see floor/agent.
func (b *bench) floorSide(pods, commits int) (*plugin, error) {
	n, err := b.newNode(pods)
	if err != nil {
		return nil, err
	}
	p := &plugin{node: n, path: b.peer("floor-plugin"), conf: []byte(`{}`), settle: n.barrier}
	err = n.startOVS()
	if err == nil {
		err = n.addBridge()
	}
	if err == nil {
		err = startFloor(n, b.peer("floor-agent"), commits)
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return p, nil
}

func startFloor(n *node, path string, commits int, more ...string) error {
	d, err := n.start(append([]string{path, fmt.Sprintf("-commits=%d", commits), "-bridge=" + bridge}, more...)...)
	if err != nil {
		return err
	}
	return n.inside(func() error {
		return d.await(func() error {
			_, err := os.Stat("/run/floor.sock")
			return err
		})
	})
}

// steps is what the ovs-cni plugin does for a port with a VLAN tag, by the
// commands that an administrator has: ip, ovs-vsctl and the host-local plugin.
// ovs-cni itself cannot be fetched from the module proxy. It does the same
// work in one process and, in the project's earlier measurements, takes
// longer.
type steps struct {
	node *node
	ipam string // path of host-local
}

func (b *bench) stepsSide(pods int) (*steps, error) {
	n, err := b.newNode(pods)
	if err != nil {
		return nil, err
	}
	err = n.startOVS()
	if err == nil {
		err = n.addBridge()
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return &steps{n, b.tool("host-local")}, nil
}

func (s *steps) Node() *node { return s.node }

func (s *steps) Settle() error { return s.node.barrier() }

func (s *steps) Call(w *worker, command string, p *pod) error {
	host := "v" + p.container[:12]
	if command == "DEL" {
		return s.del(w, host, p)
	}
	return s.add(w, host, p)
}

// add creates the pair, moves one end, attaches the other and waits for its
// ofport (ovs-vsctl does, unless told not to), then configures the pod's end.
func (s *steps) add(w *worker, host string, p *pod) error {
	for _, argv := range []string{
		"ip link add " + host + " mtu 1400 type veth peer name p" + host[1:] + " mtu 1400",
		"ip link set p" + host[1:] + " netns " + p.name,
		"ip link set " + host + " up",
		"ovs-vsctl --timeout=60 add-port " + bridge + " " + host + " tag=100 -- set Interface " + host +
			" external_ids:contNetns=" + p.netns + " external_ids:contIface=eth0 external_ids:container_id=" + p.container,
	} {
		if _, err := w.run(os.Environ(), nil, strings.Fields(argv)...); err != nil {
			return err
		}
	}
	out, err := s.callIPAM(w, "ADD", p)
	if err != nil {
		return err
	}
	address, gateway, err := given(out)
	if err != nil {
		return err
	}
	batch := "link set p" + host[1:] + " name eth0\naddr add " + address +
		" dev eth0\nlink set eth0 up\nroute add default via " + gateway + "\n"
	_, err = w.run(os.Environ(), []byte(batch), "ip", "-n", p.name, "-batch", "-")
	return err
}

// given is the one address, with its prefix length, that host-local's answer gives, and the
// gateway.
func given(answer []byte) (address, gateway string, err error) {
	var result struct {
		IPs []struct{ Address, Gateway string } `json:"ips"`
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return "", "", fmt.Errorf("host-local: %s: %w", answer, err)
	}
	if len(result.IPs) != 1 {
		return "", "", fmt.Errorf("host-local: %s: not one address", answer)
	}
	return result.IPs[0].Address, result.IPs[0].Gateway, nil
}

func (s *steps) del(w *worker, host string, p *pod) error {
	if _, err := s.callIPAM(w, "DEL", p); err != nil {
		return err
	}
	for _, argv := range []string{
		"ovs-vsctl --timeout=60 del-port " + bridge + " " + host,
		"ip link del " + host,
	} {
		if _, err := w.run(os.Environ(), nil, strings.Fields(argv)...); err != nil {
			return err
		}
	}
	return nil
}

func (s *steps) callIPAM(w *worker, command string, p *pod) ([]byte, error) {
	conf := `{"cniVersion":"1.1.0","name":"bench","type":"ovs","ipam":` + ipamConf + `}`
	return w.run(environ(command, filepath.Dir(s.ipam), p), []byte(conf), s.ipam)
}

// prepare checks that everything that is measured was built, and notes what
// it is.
func (b *bench) prepare() error {
	need := []string{b.bin("fairlead"), b.bin("fairlead-cni"), b.bin("fairlead-controller"), b.tool("bridge"), b.tool("host-device"), b.tool("host-local"), b.tool("portmap"), b.tool("bandwidth"),
		b.peer("floor-plugin"), b.peer("floor-agent"), b.peer("kube-ovn-steps")}
	if b.scale {
		need = []string{b.bin("fairlead-controller")}
	}
	for _, path := range need {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("build first (make bench): %w", err)
		}
	}
	out, err := exec.Command("ovs-vswitchd", "--version").Output()
	if err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(out), "\n")
	b.note("kernel %s; %s, userspace datapath", unix.ByteSliceToString(u.Release[:]), first)
	if b.scale {
		return nil
	}
	b.note("bridge, host-local: containernetworking/plugins %s", version(b.tool("bridge"), "github.com/containernetworking/plugins"))
	return nil
}

// version is that of a module in a Go program.
func version(path, module string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "unknown: " + err.Error()
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
