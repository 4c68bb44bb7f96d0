// Package rules computes what a node's packet filter does for the Subnets of its
// pods: sets of networks, and chains of rules over them, for each family. It is
// pure: a Ruleset is a value that follows from an Input alone, and writes itself as
// iptables reads rules (chains and sets as Kube-OVN names them) or as a table of
// nftables. Who applies it is package netfilter.
package rules

import (
	"net/netip"
)

// Tables of the kernel's packet filter, as iptables calls them.
const (
	NAT    = "nat"
	Mangle = "mangle"
	Filter = "filter"
)

// ChainPrefix is how the names of chains begin that are ours, as they are Kube-OVN's.
const ChainPrefix = "OVN-"

// Ruleset is all of it: IPv4, then IPv6. Without families there is nothing to do.
type Ruleset struct{ Families []Family }

// Family is the part for one of the address families.
type Family struct {
	V6     bool
	Sets   []Set   // sorted by name
	Chains []Chain // a chain stands behind those that it jumps to
}

func setPrefix(v6 bool) string {
	if v6 {
		return "ovn60"
	}
	return "ovn40"
}

// Set holds networks, none within another; sorted. One of Hosts holds single addresses, and
// no rule speaks of it: iptables' alone have it.
type Set struct {
	Name     string
	Does     string // for people: what it holds
	Counters bool   // each element counts what it matches
	Hosts    bool
	Members  []netip.Prefix
}

// Chain is a chain of one table. With a parent it is hooked into that chain of the
// kernel.
type Chain struct {
	Table, Name string
	Parent      string
	Rules       []Rule
}

// Hook is the rule of the parent that leads into the chain.
func (c Chain) Hook() Rule {
	return Rule{Comment: "kube-ovn " + lower(c.Parent) + " rules", Do: jump(c.Name)}
}

// Rule matches packets by all that is set in it, and does something with them.
type Rule struct {
	Comment  string
	Does     string // for people: which packets, and what becomes of them
	Src, Dst netip.Prefix
	In, Out  string // devices
	Proto    string // tcp or udp, "" any
	Port     uint16 // of the destination
	Flags    Flags  // of TCP
	Sets     []Match
	State    State
	Mark     Mark
	ToNode   bool // the destination is an address of the node
	Do       Action
}

// Match is that a set holds an address of the packet.
type Match struct {
	Set string
	Dir string // src or dst; others' sets have more
	Not bool
	// Else is the set of ours whose addresses in the same direction nftables asks instead of
	// another program's; without one it has no such rule.
	Else string
}

// Mark is a packet's mark in the bits of Mask; a Mask of 0 asks for nothing.
type Mark struct {
	Value, Mask uint32
	Not         bool
}

// Flags are what is asked of TCP's.
type Flags int

// Values of Flags.
const (
	AnyFlags Flags = iota
	NotSYN         // no first packet of a connection
	SYN            // first packets, of both directions
	RST
)

// State is what the kernel knows of the packet's connection.
type State int

// Values of State.
const (
	AnyState State = iota
	New
	Invalid
	Translated // its destination was changed, as to an endpoint of a Service
)

// Verb is what a rule does.
type Verb int

// Values of Verb.
const (
	Count Verb = iota // nothing: sets count
	Accept
	Drop
	Reject
	Return
	Jump
	SetMark
	Masquerade
	SNAT
	MSS
	Proxy
)

// Action is a verb with what it needs.
type Action struct {
	Verb  Verb
	Chain string     // of Jump
	Mark  Mark       // of SetMark and Proxy
	To    netip.Addr // of SNAT and Proxy
	Port  uint16     // of Proxy
	Size  int        // of MSS, in bytes; 0: as the path's MTU allows
}

func jump(chain string) Action { return Action{Verb: Jump, Chain: chain} }

func mark(value, mask uint32) Action {
	return Action{Verb: SetMark, Mark: Mark{Value: value, Mask: mask}}
}
