// Package shaper keeps pods to their rates, at the node's end of each pod's veth:
// what goes to the pod waits in a token bucket there (tc-tbf(8)); what comes from
// it is led through an ifb of its own and waits in one there, so that the pod
// itself can change neither. All but the ifb goes with the veth. kubelet's shaper
// had classes and filters by address on the bridge, which what leaves the node
// never passed. The package knows ports and names, no pods.
package shaper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// prefix of the names of our ifbs.
const prefix = "flifb"

const (
	leastBurst = 16 << 10 // bytes: a few full packets
	mostBurst  = 1 << 30
	perBurst   = 100 // a burst is what this fraction of a second holds
	perQueue   = 20  // and a queue this one: 50 ms
)

// Shaper works in one namespace.
type Shaper struct{ host *netns.Handle }

// New works in host; nil: the process's own namespace.
func New(host *netns.Handle) *Shaper { return &Shaper{host} }

// ifb is the name of who's device: 15 characters at most.
func ifb(who string) string {
	sum := sha256.Sum256([]byte(who))
	return prefix + hex.EncodeToString(sum[:5])
}

func (s *Shaper) handle() (*netlink.Handle, error) {
	if s.host == nil {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	return netlink.NewHandleAt(vnetns.NsHandle(s.host.Fd()), unix.NETLINK_ROUTE)
}

// Set keeps whoever is behind port, a link of the node, to its rates. Of a
// direction without rate nothing is touched. It may be repeated. What it did
// before an error Clear undoes.
func (s *Shaper) Set(who, port string, r netplugin.Rates) error {
	if r == (netplugin.Rates{}) {
		return nil
	}
	h, err := s.handle()
	if err != nil {
		return fmt.Errorf("rates of %s: %w", port, err)
	}
	defer h.Close()
	link, err := h.LinkByName(port)
	if err != nil {
		return fmt.Errorf("rates of %s: %w", port, err)
	}
	if r.Ingress > 0 {
		if err := h.QdiscReplace(bucket(link.Attrs().Index, r.Ingress)); err != nil {
			return fmt.Errorf("rate to %s: tbf: %w", port, err)
		}
	}
	if r.Egress > 0 {
		if err := lead(h, link, ifb(who), r.Egress); err != nil {
			return fmt.Errorf("rate from %s: %w", port, err)
		}
	}
	return nil
}

// bucket is the root qdisc of a link that sends rate bit/s at most.
func bucket(index int, rate int64) *netlink.Tbf {
	perSecond := uint64(rate) / 8
	burst := min(max(perSecond/perBurst, leastBurst), mostBurst)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       perSecond, Buffer: netlink.Xmittime(perSecond, uint32(burst)),
		Limit: uint32(min(burst+perSecond/perQueue, 1<<31)),
	}
}

// lead sends what comes in by link through a device of its own.
func lead(h *netlink.Handle, link netlink.Link, name string, rate int64) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, link.Attrs().MTU
	err := h.LinkAdd(&netlink.Ifb{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("ifb: %w", err)
	}
	fail.Here("shaper.ifb")
	dev, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(dev)
	}
	if err == nil {
		err = h.QdiscReplace(bucket(dev.Attrs().Index, rate))
	}
	if err != nil {
		return fmt.Errorf("ifb %s: %w", name, err)
	}
	in := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
	if err := h.QdiscAdd(in); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("ingress: %w", err)
	}
	if err := h.FilterReplace(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: in.Handle, Priority: 1, Handle: 0x80000800, Protocol: unix.ETH_P_ALL,
		},
		ClassId: netlink.MakeHandle(1, 1), Actions: []netlink.Action{netlink.NewMirredAction(dev.Attrs().Index)},
	}); err != nil {
		return fmt.Errorf("redirection: %w", err)
	}
	return nil
}

// Clear removes what Set made beside the port. Nothing to remove is success.
func (s *Shaper) Clear(who string) error {
	h, err := s.handle()
	if err != nil {
		return fmt.Errorf("remove ifb of %s: %w", who, err)
	}
	defer h.Close()
	l, err := h.LinkByName(ifb(who))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = gone(h.LinkDel(l))
	}
	if err != nil {
		return fmt.Errorf("remove ifb of %s: %w", who, err)
	}
	return nil
}

// Keep removes what is left of others than these.
func (s *Shaper) Keep(who map[string]bool) error {
	names := map[string]bool{}
	for w := range who {
		names[ifb(w)] = true
	}
	h, err := s.handle()
	if err != nil {
		return fmt.Errorf("remove ifbs: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return fmt.Errorf("remove ifbs: %w", err)
	}
	var errs []error
	for _, l := range links {
		name := l.Attrs().Name
		if _, ok := l.(*netlink.Ifb); !ok || !strings.HasPrefix(name, prefix) || names[name] {
			continue
		}
		if err := gone(h.LinkDel(l)); err != nil {
			errs = append(errs, fmt.Errorf("remove ifb %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// gone: somebody else has deleted the link.
func gone(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
