package sriov

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Tags of a VLAN, and states of a link as its virtual function sees it
// (linux/if_ether.h, linux/if_link.h).
const (
	Proto8021Q  = 0x8100
	Proto8021AD = 0x88a8

	LinkAuto    = 0 // that of the physical function
	LinkEnable  = 1
	LinkDisable = 2
)

// Attrs are what a physical function enforces of one virtual function. The zero value
// is a VF that nobody has set anything of but that its source addresses are not checked.
type Attrs struct {
	MAC       core.MAC // nil: the VF may choose
	VLAN, QoS int      // the tag of all its packets, 0 for none, and its priority
	Proto     int      // of the tag; 0 is Proto8021Q
	MinMbps   int      // of what it sends, Mbit/s; 0 for none
	MaxMbps   int
	SpoofChk  bool
	Trust     bool
	LinkState int
}

// Refused is that a driver does not take an attribute.
type Refused struct {
	Attr string // its name for `ip link set PF vf N`
	Err  error
}

func (r *Refused) Error() string { return fmt.Sprintf("the driver refuses %s: %v", r.Attr, r.Err) }

// Unwrap gives the errno.
func (r *Refused) Unwrap() error { return r.Err }

// Read gives the attributes of a VF.
func Read(v VF) (Attrs, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Attrs{}, err
	}
	defer h.Close()
	a, _, err := read(h, v)
	return a, err
}

func read(h *netlink.Handle, v VF) (Attrs, netlink.Link, error) {
	l, err := h.LinkByName(v.PF)
	if err != nil {
		return Attrs{}, nil, fmt.Errorf("physical function %s: %w", v.PF, err)
	}
	i := slices.IndexFunc(l.Attrs().Vfs, func(f netlink.VfInfo) bool { return f.ID == v.Index })
	if i < 0 {
		return Attrs{}, nil, fmt.Errorf("virtual function %d of %s: %w", v.Index, v.PF, core.ErrNotFound)
	}
	f := l.Attrs().Vfs[i]
	a := Attrs{
		VLAN: f.Vlan, QoS: f.Qos, MinMbps: int(f.MinTxRate), MaxMbps: max(int(f.MaxTxRate), f.TxRate),
		SpoofChk: f.Spoofchk, Trust: f.Trust == 1, LinkState: int(f.LinkState),
	}
	if !bytes.Equal(f.Mac, make(net.HardwareAddr, len(f.Mac))) {
		a.MAC = core.MAC(f.Mac)
	}
	if f.VlanProto == Proto8021AD {
		a.Proto = Proto8021AD
	}
	return a, l, nil
}

// Equal compares; a tag of no VLAN has no protocol.
func (a Attrs) Equal(b Attrs) bool { return len(a.Differ(b)) == 0 }

// Differ names what of the attributes have is not as in a. A MAC that the VF has chosen
// itself looks like one that was given to it: without one in a it is not compared.
func (a Attrs) Differ(have Attrs) (out []string) {
	if len(a.MAC) == 0 {
		have.MAC = nil
	}
	for _, t := range a.table() {
		if want, got := t.text(a), t.text(have); want != got {
			out = append(out, fmt.Sprintf("%s is %s, not %s", t.name, got, want))
		}
	}
	return out
}

type attr struct {
	name string
	text func(Attrs) string
	set  func(h *netlink.Handle, l netlink.Link, vf int) error
}

func (a Attrs) table() []attr {
	return []attr{
		{"mac", func(a Attrs) string { return a.mac().String() }, func(h *netlink.Handle, l netlink.Link, vf int) error { return h.LinkSetVfHardwareAddr(l, vf, a.mac()) }},
		{
			"vlan", func(a Attrs) string { return fmt.Sprintf("%d qos %d proto %#x", a.VLAN, a.QoS, a.proto()) },
			func(h *netlink.Handle, l netlink.Link, vf int) error {
				return h.LinkSetVfVlanQosProto(l, vf, a.VLAN, a.QoS, a.proto())
			},
		},
		{
			"rate", func(a Attrs) string { return fmt.Sprintf("%d to %d Mbit/s", a.MinMbps, a.MaxMbps) },
			func(h *netlink.Handle, l netlink.Link, vf int) error {
				return h.LinkSetVfRate(l, vf, a.MinMbps, a.MaxMbps)
			},
		},
		{"spoofchk", func(a Attrs) string { return onOff(a.SpoofChk) }, func(h *netlink.Handle, l netlink.Link, vf int) error { return h.LinkSetVfSpoofchk(l, vf, a.SpoofChk) }},
		{"trust", func(a Attrs) string { return onOff(a.Trust) }, func(h *netlink.Handle, l netlink.Link, vf int) error { return h.LinkSetVfTrust(l, vf, a.Trust) }},
		{
			"state", func(a Attrs) string { return [...]string{"auto", "enable", "disable"}[a.LinkState%3] },
			func(h *netlink.Handle, l netlink.Link, vf int) error {
				return h.LinkSetVfState(l, vf, uint32(a.LinkState))
			}, //nolint:gosec // 0 to 2
		},
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (a Attrs) mac() net.HardwareAddr {
	if len(a.MAC) == 0 {
		return make(net.HardwareAddr, 6)
	}
	return net.HardwareAddr(a.MAC)
}

func (a Attrs) proto() int {
	if a.VLAN == 0 || a.Proto == 0 {
		return Proto8021Q
	}
	return a.Proto
}

// Write sets all attributes of a VF; Prove tells whether they are so now. What a driver
// cannot set and is as wanted is no error; what it does not take is Refused, and the
// attributes before it in `ip`'s order are set then.
func Write(v VF, want Attrs) error {
	return write(v, want, func(attr, Attrs) bool { return true })
}

// Adjust is Write for a VF that is in use: what is as wanted is not set again, and its MAC
// is not touched, since cards begin anew with one.
func Adjust(v VF, want Attrs) error {
	return write(v, want, func(t attr, have Attrs) bool { return t.name != "mac" && t.text(want) != t.text(have) })
}

// write sets the attributes that differ says, of those that the VF has.
func write(v VF, want Attrs, differ func(t attr, have Attrs) bool) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	have, l, err := read(h, v)
	if err != nil {
		return err
	}
	for _, t := range want.table() {
		if !differ(t, have) {
			continue
		}
		err := t.set(h, l, v.Index)
		switch {
		case err == nil:
		case !isRefusal(err):
			return fmt.Errorf("set %s of virtual function %d of %s: %w", t.name, v.Index, v.PF, err)
		case t.text(want) != t.text(have):
			return &Refused{t.name, err}
		}
	}
	return nil
}

// Prove reads the attributes of a VF. One that is not as wanted is Refused: drivers take
// some that they do not set.
func Prove(v VF, want Attrs) error {
	have, err := Read(v)
	if err != nil {
		return err
	}
	if bad := want.Differ(have); len(bad) > 0 {
		return &Refused{bad[0], errors.New("it was taken, and is not so")}
	}
	return nil
}

// isRefusal tells that a driver does not do what it is asked; others fail.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{unix.EOPNOTSUPP, unix.EINVAL, unix.EPROTONOSUPPORT, unix.ERANGE}, func(e error) bool { return errors.Is(err, e) })
}

// Move puts a network device, by its index in the namespace of the handle from (nil:
// the process's own), into another namespace under another name, in one request.
// core.ErrExists: the name is taken there; where the one that it had was free it has
// moved nevertheless, and kept that.
func Move(from *netns.Handle, index int, to *netns.Handle, name string) error {
	move := func() error {
		req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(index) //nolint:gosec // the kernel's own
		req.AddData(msg)
		req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.Fd())))) //nolint:gosec // a descriptor
		req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	}
	var err error
	if from == nil {
		err = move()
	} else {
		err = from.Do(move)
	}
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w: %w", core.ErrExists, err)
	}
	if err != nil {
		return fmt.Errorf("move network device %d to %s in %s: %w", index, name, to, err)
	}
	return nil
}

// SetState sets the state of a VF's link alone. Refused: the driver has none.
func SetState(v VF, state int) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(v.PF)
	if err != nil {
		return fmt.Errorf("physical function %s: %w", v.PF, err)
	}
	err = h.LinkSetVfState(l, v.Index, uint32(state)) //nolint:gosec // 0 to 2
	if isRefusal(err) {
		return &Refused{"state", err}
	}
	if err != nil {
		return fmt.Errorf("set state of virtual function %d of %s: %w", v.Index, v.PF, err)
	}
	return nil
}

// HasState tells that the driver takes the state of a VF's link, by setting the one that it has.
func HasState(v VF) bool {
	a, err := Read(v)
	return err == nil && SetState(v, a.LinkState) == nil
}
