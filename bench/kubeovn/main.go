// Command kubeovn does for an ADD on OVN what Kube-OVN's plugin and daemon do
// together, with conflict probing off: the same processes in the same order (facts
// read from its source; ovs-vsctl, ethtool), netlink in process, a device that is
// moved into its namespace, and a look each 500 ms for ovn-installed. It reads no
// API server and keeps nothing, which is in its favour.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

const (
	bridge = "br-int"
	mtu    = 1400
	poll   = 500 * time.Millisecond
	polls  = 60
)

// call is what it is asked for, from its environment.
type call struct{ command, container, netns, iface, pod, mac, ip, gateway, rate string }

func main() {
	runtime.LockOSThread() // it goes into the pod's namespace and stays there
	_, _ = io.Copy(io.Discard, os.Stdin)
	c := call{
		os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_NETNS"), os.Getenv("BENCH_IFACE"), os.Getenv("BENCH_POD"),
		os.Getenv("BENCH_MAC"), os.Getenv("BENCH_IP"), os.Getenv("BENCH_GATEWAY"), os.Getenv("BENCH_RATE"),
	}
	do := c.add
	if c.command == "DEL" {
		do = c.del
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeovn:", err)
		os.Exit(1)
	}
}

func (c call) host() string { return c.container[:12] + "_h" }
func (c call) peer() string { return c.container[:12] + "_c" }

// run runs a program to its end and gives its output.
func run(argv ...string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func vsctl(args ...string) (string, error) {
	return run(append([]string{"ovs-vsctl", "--timeout=30"}, args...)...)
}

func find(table, column, condition string) (string, error) {
	return vsctl("--no-heading", "--columns="+column, "--format=csv", "--data=bare", "find", table, condition)
}

func (c call) add() error {
	if err := c.veth(); err != nil {
		return err
	}
	id := `external_ids:iface-id="` + c.iface + `"`
	steps := []func() error{
		func() error { return ignored(find("interface", "name", id)) }, // an earlier port of the pod
		func() error {
			return ignored(vsctl("--may-exist", "add-port", bridge, c.host(), "--", "set", "interface", c.host(), "external_ids:iface-id="+c.iface,
				"external_ids:vendor=kube-ovn", "external_ids:pod_name="+c.pod, "external_ids:pod_namespace=bench",
				"external_ids:ip="+c.ip, "external_ids:pod_netns="+c.netns))
		},
		func() error { return c.rates(id) },
		func() error { return ignored(find("interface", "name", id)) }, // delay and loss, of which there are none
		func() error { return ignored(find("qos", "_uuid", id)) },
		func() error { return ignored(find("bridge", "datapath_type", "name="+bridge)) },
		func() error { return ignored(run("ethtool", "-K", c.peer(), "tx", "off")) },
		func() error { return c.installed(id) },
		c.inside,
		func() error { return ignored(find("mirror", "select_dst_port", "name=m0")) },
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

func ignored(_ string, err error) error { return err }

// veth makes the pair on the node.
func (c call) veth() error {
	mac, err := net.ParseMAC(c.mac)
	if err != nil {
		return err
	}
	v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: c.peer(), PeerHardwareAddr: mac, PeerMTU: mtu}
	v.Name, v.MTU, v.TxQLen = c.host(), mtu, 1000
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("add %s: %w", v.Name, err)
	}
	return netlink.LinkSetUp(v)
}

// rates sets policing, and with rates a queue, a QoS row and the port's reference.
func (c call) rates(id string) error {
	policing, burst := "0", "0"
	if c.rate != "" {
		policing, burst = c.rate+"000", c.rate+"800"
	}
	for _, step := range [][]string{
		{"--no-heading", "--columns=name", "--format=csv", "--data=bare", "find", "interface", id},
		{"--no-heading", "--columns=_uuid,external_ids", "--format=csv", "--data=bare", "find", "qos", "external_ids:iface-id!=\"\""},
		{"--no-heading", "--columns=_uuid,external_ids", "--format=csv", "--data=bare", "find", "queue", "external_ids:iface-id!=\"\""},
		{"set", "interface", c.host(), "ingress_policing_rate=" + policing, "ingress_policing_burst=" + burst},
	} {
		if _, err := vsctl(step...); err != nil {
			return err
		}
	}
	if c.rate == "" {
		return nil
	}
	queue, err := vsctl("create", "queue", "other_config:max-rate="+c.rate+"000000", "external_ids:iface-id="+c.iface, "external_ids:pod=bench/"+c.pod)
	if err != nil {
		return err
	}
	qos, err := vsctl("create", "qos", "queues:0="+queue, "type=linux-htb", "external_ids:iface-id="+c.iface, "external_ids:pod=bench/"+c.pod)
	if err != nil {
		return err
	}
	if _, err := vsctl("set", "port", c.host(), "qos="+qos); err != nil {
		return err
	}
	return ignored(vsctl("get", "qos", qos, "type"))
}

// installed looks until ovn-controller says that the port's flows are there.
func (c call) installed(id string) error {
	for range polls {
		out, err := vsctl("--no-heading", "--columns=name", "--format=csv", "--data=bare", "find", "interface", id, "external_ids:ovn-installed=true")
		if err != nil || out != "" {
			return err
		}
		time.Sleep(poll)
	}
	return errors.New("no flows after 30 s")
}

// inside moves the pod's end into its namespace and configures it there.
func (c call) inside() error {
	ns, err := netns.GetFromPath(c.netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	link, err := netlink.LinkByName(c.peer())
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(link, int(ns)); err != nil {
		return err
	}
	node, err := netns.Get()
	if err != nil {
		return err
	}
	if err := netns.Set(ns); err != nil {
		return err
	}
	err = c.configure()
	return errors.Join(err, netns.Set(node))
}

func (c call) configure() error {
	link, err := netlink.LinkByName(c.peer())
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(c.ip + "/16")
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return netlink.LinkSetName(link, "eth0") },
		func() error { return netlink.LinkSetMTU(link, mtu) },
		func() error { return netlink.AddrAdd(link, addr) },
		func() error { return netlink.LinkSetUp(link) },
		func() error { return ignored(run("ethtool", "-k", "eth0")) },
		func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(c.gateway)})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// del is five processes, and what goes of QoS.
func (c call) del() error {
	id := `external_ids:iface-id="` + c.iface + `"`
	if _, err := vsctl("--if-exists", "--with-iface", "del-port", bridge, c.host()); err != nil {
		return err
	}
	for _, table := range []string{"qos", "queue"} {
		rows, err := find(table, "_uuid", id)
		if err != nil {
			return err
		}
		used := map[string]string{"qos": "port", "queue": "qos"}[table]
		column := map[string]string{"qos": "qos", "queue": "queues"}[table]
		if _, err := find(used, column, column+"!=[]"); err != nil && table == "qos" {
			return err
		}
		for _, row := range strings.Fields(rows) {
			if _, err := vsctl("--if-exists", "destroy", table, row); err != nil {
				return err
			}
		}
	}
	link, err := netlink.LinkByName(c.host())
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}
