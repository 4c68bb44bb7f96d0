package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// probeLink is the node's end of the veth pair in the throw-away namespace.
const probeLink = "probe"

// needs are the capabilities that the agent cannot do without (reliability.md,
// Security).
var needs = []struct {
	bit  int
	name string
}{
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"},
	{unix.CAP_NET_RAW, "CAP_NET_RAW"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
}

func checkPrivileges(context.Context, *machine) outcome {
	caps := [2]unix.CapUserData{}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		return bad("sudo fairlead doctor", "capabilities cannot be read: %v", err)
	}
	var missing []string
	for _, n := range needs {
		if caps[n.bit/32].Effective&(1<<(n.bit%32)) == 0 {
			missing = append(missing, n.name)
		}
	}
	if len(missing) > 0 {
		return bad("sudo fairlead doctor", "this process lacks %s", strings.Join(missing, ", "))
	}
	var u unix.Utsname
	_ = unix.Uname(&u) // fails only for a bad address
	return good("NET_ADMIN, NET_RAW, SYS_ADMIN; Linux %s", unix.ByteSliceToString(u.Release[:]))
}

const netnsNext = "run as root outside of a restricted container; the kernel needs CONFIG_NET_NS"

func checkNetns(_ context.Context, m *machine) outcome {
	if m.nsErr != nil {
		return bad(netnsNext, "%v", m.nsErr)
	}
	return good("made one for the probes below")
}

func checkCookie(_ context.Context, m *machine) outcome {
	if m.nsErr != nil {
		return bad(netnsNext, "no namespace to ask")
	}
	if _, err := m.ns.Cookie(); err != nil {
		return warn("use Linux 5.14 or later", "a namespace is known by its path only, which a later pod may reuse: %v", err)
	}
	return good("namespaces are told apart (SO_NETNS_COOKIE)")
}

// veth makes the pair that the traffic control probes need; once is enough.
func (m *machine) veth() (rtnl.Link, error) {
	if m.nsErr != nil {
		return rtnl.Link{}, m.nsErr
	}
	conn, err := rtnl.Open(m.ns)
	if err != nil {
		return rtnl.Link{}, err
	}
	defer func() { _ = conn.Close() }()
	return conn.EnsureVeth(rtnl.Veth{Name: probeLink, MTU: 1400, Peer: m.ns, PeerName: probeLink + "-pod", PeerMTU: 1400})
}

func checkVeth(_ context.Context, m *machine) outcome {
	if _, err := m.veth(); err != nil {
		return bad("modprobe veth; the kernel needs CONFIG_VETH", "%v", err)
	}
	return good("a pair was made across a namespace")
}

// traffic runs fn with a netlink handle in the throw-away namespace and the
// index of a link there.
func (m *machine) traffic(fn func(h *netlink.Handle, index int) error) error {
	link, err := m.veth()
	if err != nil {
		return err
	}
	var h *netlink.Handle
	err = m.ns.Do(func() error {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return fn(h, link.Index)
}

func checkHTB(_ context.Context, m *machine) outcome {
	err := m.traffic(func(h *netlink.Handle, index int) error {
		return h.QdiscReplace(netlink.NewHtb(netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}))
	})
	if err != nil {
		return warn("modprobe sch_htb; the kernel needs CONFIG_NET_SCH_HTB", "ingress_rate is refused by Open vSwitch: %v", err)
	}
	return good("qdisc htb was set")
}

// Police is nil when this kernel enforces rates from pods. It is tried in a
// network namespace that goes with the probe.
func Police() error {
	m := &machine{}
	m.ns, m.nsErr = netns.New()
	defer m.close()
	return m.police()
}

// police sets what Open vSwitch sets for ingress_policing_rate: an ingress
// qdisc and a filter with a police action (ovs netdev-linux).
func (m *machine) police() error {
	return m.traffic(func(h *netlink.Handle, index int) error {
		q := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
		}}
		if err := h.QdiscReplace(q); err != nil {
			return fmt.Errorf("ingress qdisc: %w", err)
		}
		police := netlink.NewPoliceAction()
		police.Rate, police.Burst, police.Mtu = 1_000_000/8, 100_000, 65_535
		police.ExceedAction = netlink.TC_POLICE_SHOT
		return h.FilterAdd(&netlink.MatchAll{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 49, Protocol: unix.ETH_P_ALL,
			},
			Actions: []netlink.Action{police},
		})
	})
}

// Netem is nil when this kernel can delay and lose packets.
func Netem() error {
	m := &machine{}
	m.ns, m.nsErr = netns.New()
	defer m.close()
	return m.netem()
}

// netem sets what Open vSwitch sets for a delay without a rate.
func (m *machine) netem() error {
	return m.traffic(func(h *netlink.Handle, index int) error {
		root := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
		return h.QdiscReplace(netlink.NewNetem(root, netlink.NetemQdiscAttrs{Latency: 1000}))
	})
}

func checkNetem(_ context.Context, m *machine) outcome {
	if err := m.netem(); err != nil {
		return warn("modprobe sch_netem; or use a kernel that has it",
			"latency, jitter, limit and loss are stored but not enforced: the kernel refuses qdisc netem (%v)", err)
	}
	return good("qdisc netem was set")
}

func checkPolice(_ context.Context, m *machine) outcome {
	if err := m.police(); err != nil {
		return warn("modprobe -a act_police cls_matchall sch_ingress; or use a kernel that has them",
			"egress_rate is stored but not enforced: the kernel refuses a policing filter (%v)", err)
	}
	return good("a policing filter was set")
}

// nftProbe is the kind of rule that the gateway sets for natOutgoing.
const nftProbe = `table ip fairlead-doctor {
	chain post {
		type nat hook postrouting priority 100;
		ip saddr 10.16.0.0/16 ip daddr != 10.16.0.0/16 masquerade
	}
}
`

func checkNFT(ctx context.Context, m *machine) outcome {
	if m.nsErr != nil {
		return bad(netnsNext, "no namespace to try it in")
	}
	_, err := m.inside(ctx, Command{Argv: []string{"nft", "-f", "-"}, Stdin: nftProbe})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad("apt-get install nftables", "the program nft is not installed")
	case err != nil:
		return bad("modprobe -a nf_tables nft_masq nft_chain_nat", "a masquerade rule was refused: %v", err)
	}
	return good("a masquerade rule was set")
}

// datapaths are the ways in which Open vSwitch can forward on this kernel.
type datapaths struct {
	kernel error // nil: openvswitch is there
	tun    error // nil: /dev/net/tun is there, which the userspace datapath needs; a container's /dev lacks it
}

func kernelDatapaths() (d datapaths) {
	// The kernel loads the module when root asks for its family.
	_, d.kernel = netlink.GenlFamilyGet("ovs_datapath")
	_, d.tun = os.Stat("/dev/net/tun")
	return d
}

func checkDatapath(_ context.Context, m *machine) outcome {
	const next = "modprobe openvswitch (package linux-modules-extra on some distributions)"
	switch {
	case m.datapaths.kernel == nil:
		return good("kernel module openvswitch (system)")
	case m.datapaths.tun == nil || m.ovs.forwards(m.cfg.Bridge, "netdev"):
		return warn(next, "no kernel module openvswitch: the userspace datapath (netdev) is used, which is slower")
	}
	return bad(next+", or modprobe tun", "neither the module openvswitch nor /dev/net/tun is there: %v", m.datapaths.tun)
}

// sysctl reads a value below /proc/sys/net and tells whether it may be written.
func sysctl(name string) (value string, writable bool, err error) {
	path := "/proc/sys/net/" + name
	b, err := os.ReadFile(path)
	if err != nil {
		return "", false, err
	}
	return strings.TrimSpace(string(b)), unix.Access(path, unix.W_OK) == nil, nil
}

func checkForwarding(context.Context, *machine) outcome {
	value, writable, err := sysctl("ipv4/ip_forward")
	switch {
	case err != nil:
		return bad("mount /proc", "%v", err)
	case value == "1":
		return good("on")
	case !writable:
		return bad("sysctl -w net.ipv4.ip_forward=1 on the host", "off, and /proc/sys is read-only here: the agent cannot turn it on")
	}
	return good("off; the agent turns it on with the first gateway")
}

func checkIPv6(context.Context, *machine) outcome {
	const next = "sysctl -w net.ipv6.conf.all.disable_ipv6=0; boot without ipv6.disable=1"
	value, _, err := sysctl("ipv6/conf/all/disable_ipv6")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(next, "this kernel has no IPv6: dual-stack subnets cannot be served")
	case err != nil:
		return bad("mount /proc", "%v", err)
	case value != "0":
		return warn(next, "disabled on the node: gateways of IPv6 subnets do not work")
	}
	return good("on")
}
