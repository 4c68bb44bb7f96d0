package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const mtu = 1400

// kernel does the least that gives a namespace an interface: a pair created
// where it belongs, an address, up, a default route. A socket per caller.
type kernel struct {
	idle  sync.Pool // *netlink.Handle of this namespace
	given atomic.Uint32
}

func (k *kernel) handle() (*netlink.Handle, error) {
	if h, ok := k.idle.Get().(*netlink.Handle); ok {
		return h, nil
	}
	return netlink.NewHandle(unix.NETLINK_ROUTE)
}

// attach makes the pair; the host's end is up when it returns.
func (k *kernel) attach(host, path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer ns.Close()
	h, err := k.handle()
	if err != nil {
		return err
	}
	defer k.idle.Put(h)
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "eth0", PeerNamespace: netlink.NsFd(ns), PeerMTU: mtu}
	veth.Name, veth.MTU, veth.Flags = host, mtu, net.FlagUp
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("add %s: %w", host, err)
	}
	pod, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer pod.Close()
	return k.address(pod)
}

// address gives eth0 the next address and makes it the way out.
func (k *kernel) address(pod *netlink.Handle) error {
	eth0, err := pod.LinkByName("eth0")
	if err != nil {
		return err
	}
	n := 2 + k.given.Add(1)%65000
	own := &net.IPNet{IP: net.IPv4(10, 30, byte(n>>8), byte(n)), Mask: net.CIDRMask(16, 32)}
	if err := pod.AddrAdd(eth0, &netlink.Addr{IPNet: own}); err != nil {
		return fmt.Errorf("address %s: %w", own, err)
	}
	if err := pod.LinkSetUp(eth0); err != nil {
		return err
	}
	return pod.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.IPv4(10, 30, 0, 1)})
}

func (k *kernel) detach(host string) error {
	h, err := k.handle()
	if err != nil {
		return err
	}
	defer k.idle.Put(h)
	link, err := h.LinkByName(host)
	if err != nil {
		return err
	}
	return h.LinkDel(link)
}
