package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// Rule is a policy rule: which packets look into which table of routes. What is not named
// here it carries as the kernel gave it.
type Rule struct {
	Family   int    // AF_INET or AF_INET6
	Priority int    // the lowest comes first
	IIF, OIF string // the link by which a packet came, or a socket is bound to; "" for any
	Protocol int    // RTPROT_*, who made it
	Table    int
	Header   []byte // struct fib_rule_hdr, whole
	Rest     []RuleAttr
}

// RuleAttr is one attribute (FRA_*) as the kernel has it.
type RuleAttr struct {
	Kind int
	Data []byte
}

// RuleFrom is the rule that packets from some addresses look into a table; protocol says
// who made it.
func RuleFrom(src netip.Prefix, priority, table, protocol int) Rule {
	h := unix.RtMsg{Family: uint8(family(src.Addr())), Src_len: uint8(src.Bits()), Type: unix.FR_ACT_TO_TBL} //nolint:gosec // at most 128
	return Rule{
		Family: family(src.Addr()), Priority: priority, Protocol: protocol, Table: table,
		Header: (&nl.RtMsg{RtMsg: h}).Serialize(),
		Rest:   []RuleAttr{{unix.FRA_SRC, src.Masked().Addr().AsSlice()}},
	}
}

// RuleMark is the rule that packets with a mark look into a table.
func RuleMark(v6 bool, mark uint32, priority, table, protocol int) Rule {
	fam := uint8(unix.AF_INET)
	if v6 {
		fam = unix.AF_INET6
	}
	number := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	return Rule{
		Family: int(fam), Priority: priority, Protocol: protocol, Table: table,
		Header: (&nl.RtMsg{RtMsg: unix.RtMsg{Family: fam, Type: unix.FR_ACT_TO_TBL}}).Serialize(),
		Rest:   []RuleAttr{{unix.FRA_FWMARK, number(mark)}, {unix.FRA_FWMASK, number(math.MaxUint32)}},
	}
}

// Mark is that of the packets which the rule is for; 0 for all.
func (r Rule) Mark() uint32 {
	for _, a := range r.Rest {
		if a.Kind == unix.FRA_FWMARK && len(a.Data) == 4 {
			return binary.NativeEndian.Uint32(a.Data)
		}
	}
	return 0
}

// From are the addresses whose packets the rule is for; invalid for all.
func (r Rule) From() netip.Prefix {
	for _, a := range r.Rest {
		if a.Kind != unix.FRA_SRC {
			continue
		}
		if ip, ok := netip.AddrFromSlice(a.Data); ok {
			return netip.PrefixFrom(ip, int(nl.DeserializeRtMsg(r.Header).Src_len))
		}
	}
	return netip.Prefix{}
}

// sizeofRuleHeader is that of struct fib_rule_hdr, which begins as struct rtmsg does.
const sizeofRuleHeader = unix.SizeofRtMsg

// Rules gives the policy rules of both families, in the kernel's order.
func (c *Conn) Rules() (list []Rule, err error) {
	for _, fam := range []int{unix.AF_INET, unix.AF_INET6} {
		m := c.message(unix.RTM_GETRULE, 0, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(fam)}})
		found, err := dumped(m, unix.RTM_NEWRULE, parseRule)
		if errors.Is(err, unix.EAFNOSUPPORT) { // no IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		list = append(list, found...)
	}
	return list, nil
}

// parseRule reads an RTM_NEWRULE.
func parseRule(b []byte) (Rule, error) {
	if len(b) < sizeofRuleHeader {
		return Rule{}, errors.New("short rule message")
	}
	h := nl.DeserializeRtMsg(b)
	r := Rule{Family: int(h.Family), Table: int(h.Table), Header: bytes.Clone(b[:sizeofRuleHeader])}
	err := nlsock.Attrs(b[sizeofRuleHeader:], func(kind uint16, v []byte) {
		switch kind {
		case unix.FRA_IIFNAME:
			r.IIF = unix.ByteSliceToString(v)
		case unix.FRA_OIFNAME:
			r.OIF = unix.ByteSliceToString(v)
		case unix.FRA_PRIORITY:
			r.Priority = int(u32(v))
		case unix.FRA_TABLE:
			r.Table = int(u32(v))
		case unix.FRA_PROTOCOL:
			if len(v) > 0 {
				r.Protocol = int(v[0])
			}
		default:
			r.Rest = append(r.Rest, RuleAttr{int(kind), bytes.Clone(v)})
		}
	})
	return r, err
}

// AddRule makes a rule. One that is the very same is success.
func (c *Conn) AddRule(r Rule) error {
	err := c.ruleMessage(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, r).exec()
	if err != nil && !errors.Is(err, core.ErrExists) {
		return fmt.Errorf("add rule %d: %w", r.Priority, err)
	}
	return nil
}

// DelRule takes a rule away, as Rules gave it. One that is gone is success.
func (c *Conn) DelRule(r Rule) error {
	err := c.ruleMessage(unix.RTM_DELRULE, 0, r).exec()
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete rule %d: %w", r.Priority, err)
	}
	return nil
}

// findings are what the kernel tells of a rule and nobody may say: that a link of it is
// not there.
const findings = unix.FIB_RULE_IIF_DETACHED | unix.FIB_RULE_OIF_DETACHED

func (c *Conn) ruleMessage(kind, flags int, r Rule) message {
	h := nl.DeserializeRtMsg(slices.Clone(r.Header))
	h.Flags &^= findings
	m := c.message(kind, flags, h).u32(unix.FRA_PRIORITY, uint32(r.Priority)).u32(unix.FRA_TABLE, uint32(r.Table))
	if r.IIF != "" {
		m.attr(unix.FRA_IIFNAME, nl.ZeroTerminated(r.IIF))
	}
	if r.OIF != "" {
		m.attr(unix.FRA_OIFNAME, nl.ZeroTerminated(r.OIF))
	}
	if r.Protocol != 0 {
		m.attr(unix.FRA_PROTOCOL, []byte{uint8(r.Protocol)})
	}
	for _, a := range r.Rest {
		m.attr(a.Kind, a.Data)
	}
	return m
}
