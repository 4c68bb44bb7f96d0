// Package match says what is wrong with an expression in OVN's match language
// (ovn-sb(5), table Logical_Flow), of which OVN itself tells nobody but the log of
// each ovn-controller. It knows the grammar and the names of fields; of types only
// that a constant is one. It must not know whose expression it is.
package match

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// tokens are what an expression consists of, blanks and comments among it.
var tokens = regexp.MustCompile(`^(?:\s+|/\*(?s:.*?)\*/|//[^\n]*|"(?:[^"\\]|\\.)*"|[$@][\w.]+|&&|\|\||[=!<>]=|[!<>(){},]|\[\d+(?:\.\.\d+)?\]|[\w.:]+(?:/[\w.:]+)?)`)

// fields are names by what stands before their first point, for those whose members
// are few; "" is the name alone. Of others, as reg0 and ct, any member is taken.
var fields = map[string]string{
	"inport": "|", "outport": "|", "eth": "src|dst|type|bcast|mcast|mcastv6", "vlan": "present|tci|vid|pcp",
	"ip": "|proto|dscp|ecn|ttl|frag|is_frag|later_frag|first_frag", "ip4": "|src|dst|bcast|mcast|src_mcast", "ip6": "|src|dst|label|mcast|mcast_flood",
	"icmp": "|", "icmp4": "|type|code|frag_mtu", "icmp6": "|type|code|frag_mtu", "igmp": "|", "mldv1": "|", "mldv2": "|",
	"arp": "|op|spa|sha|tpa|tha", "rarp": "|op|spa|sha|tpa|tha", "nd": "|target|sll|tll", "nd_ns": "|", "nd_ns_mcast": "|", "nd_na": "|", "nd_rs": "|", "nd_ra": "|",
	"tcp": "|src|dst|flags", "udp": "|src|dst", "sctp": "|src|dst",
}

// others are names of further fields.
var others = regexp.MustCompile(`^(?:reg|xreg|xxreg)\d+$|^(?:ct|ct_\w+|flags|pkt)(?:\.\w+)*$`)

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

// known are the faults of expressions that were asked about: a Subnet's are with each of its
// pods that comes or goes, and to read one costs more than all else that is looked at then.
var known = struct {
	sync.Mutex
	faults map[string]string
}{faults: map[string]string{}}

// mostKnown bounds them.
const mostKnown = 10_000

// Fault is why OVN does not read an expression, "" where it does, as far as that can be
// known without the database: an address set may be missing there.
func Fault(text string) string {
	known.Lock()
	fault, is := known.faults[text]
	known.Unlock()
	if is {
		return fault
	}
	fault = read(text)
	known.Lock()
	defer known.Unlock()
	if len(known.faults) >= mostKnown {
		clear(known.faults)
	}
	known.faults[text] = fault
	return fault
}

func read(text string) (fault string) {
	p := parser{}
	for rest := text; rest != ""; {
		t := tokens.FindString(rest)
		if t == "" {
			return fmt.Sprintf("%q means nothing", rest)
		}
		rest = rest[len(t):]
		if strings.TrimSpace(t) != "" && !strings.HasPrefix(t, "/*") && !strings.HasPrefix(t, "//") {
			p.rest = append(p.rest, t)
		}
	}
	p.all()
	if p.fault == "" && len(p.rest) > 0 {
		p.wants("an end")
	}
	return p.fault
}

// parser reads tokens. What it finds first is wrong; then it reads none.
type parser struct {
	rest  []string
	fault string
}

// next is the token that comes, "" for none.
func (p *parser) next() string {
	if len(p.rest) == 0 || p.fault != "" {
		return ""
	}
	return p.rest[0]
}

// takes reads a token if it is the one that comes.
func (p *parser) takes(t string) bool {
	is := p.next() == t
	if is {
		p.rest = p.rest[1:]
	}
	return is
}

// wants says that something else should come.
func (p *parser) wants(what string) {
	switch {
	case p.fault != "":
	case len(p.rest) == 0:
		p.fault = "it ends where " + what + " should stand"
	default:
		p.fault = fmt.Sprintf("%q stands where %s should", p.rest[0], what)
	}
}

// all reads parts that are all to be true, or one of them.
func (p *parser) all() {
	p.part()
	joint := p.next()
	if joint != "&&" && joint != "||" {
		return
	}
	for p.takes(joint) {
		p.part()
	}
	if next := p.next(); next == "&&" || next == "||" {
		p.fault = "&& and || together need parentheses"
	}
}

// part reads what is true or false by itself.
func (p *parser) part() {
	switch {
	case p.takes("!"):
		p.part()
	case p.takes("("):
		if p.all(); !p.takes(")") {
			p.wants(`")"`)
		}
	case p.takes("is_chassis_resident"):
		if !p.takes("(") || !p.constant(p.next()) || !p.takes(p.next()) || !p.takes(")") {
			p.wants(`("PORT")`)
		}
	default:
		p.comparison()
	}
}

// comparison reads a field alone, or one that is compared with constants, on one side
// or on both.
func (p *parser) comparison() {
	first := p.next()
	field := p.term()
	if !p.compares() {
		if !field && first != "0" && first != "1" { // false and true
			p.wants("a comparison")
		}
		return
	}
	if second := p.term(); second == field {
		p.wants("a comparison of a field with a constant")
	}
	if !field && p.compares() && p.term() {
		p.wants("a constant")
	}
}

// compares reads a comparison's sign.
func (p *parser) compares() bool { return slices.Contains(comparisons, p.next()) && p.takes(p.next()) }

// term reads a field, or a constant or several.
func (p *parser) term() (field bool) {
	t := p.next()
	switch {
	case p.takes("{"):
		for first := true; first || !p.takes("}"); first = false {
			if !p.constant(p.next()) {
				p.wants("a constant")
				return false
			}
			p.takes(p.next())
			p.takes(",")
		}
	case p.constant(t):
		p.takes(t)
	case named(t):
		p.takes(t)
		if strings.HasPrefix(p.next(), "[") {
			p.takes(p.next())
		}
		return true
	default:
		p.wants("a field or a constant")
	}
	return false
}

// named tells that there is a field of a name.
func named(name string) bool {
	at, member, _ := strings.Cut(name, ".")
	members, known := fields[at]
	return known && slices.Contains(strings.Split(members, "|"), member) && !strings.HasSuffix(name, ".") || others.MatchString(name)
}

// constant tells that a token is a number, an address, one of both with a mask, a text,
// an address set or a port group.
func (p *parser) constant(t string) bool {
	if t != "" && strings.ContainsAny(t[:1], `"$@`) {
		return true
	}
	value, mask, masked := strings.Cut(t, "/")
	if !masked {
		return number(value) || address(value)
	}
	if ip, err := netip.ParseAddr(value); err == nil {
		bits, err := strconv.Atoi(mask)
		return err == nil && bits >= 0 && bits <= ip.BitLen() || address(mask)
	}
	return number(value) && number(mask) || address(value) && address(mask)
}

func number(t string) bool {
	if hex, is := strings.CutPrefix(t, "0x"); is {
		return hex != "" && strings.Trim(hex, "0123456789abcdefABCDEF") == ""
	}
	_, err := strconv.ParseUint(t, 10, 64)
	return err == nil
}

func address(t string) bool {
	if _, err := netip.ParseAddr(t); err == nil {
		return true
	}
	mac, err := net.ParseMAC(t)
	return err == nil && len(mac) == 6 && strings.Contains(t, ":")
}
