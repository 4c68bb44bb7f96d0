package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// nfgenmsg is the length of the header before a message's attributes, in bytes.
const nfgenmsg = 4

// Kinds of news.
const (
	newTable   netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE
	delTable   netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE
	newChain   netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	delChain   netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELCHAIN
	newRule    netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE
	delRule    netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE
	newSet     netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSET
	delSet     netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELSET
	newElement netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM
	delElement netlink.HeaderType = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELSETELEM
)

// changes are the news that a part of a table came, became another or went, or that a table
// sleeps or wakes, which is told as if it came.
var changes = []netlink.HeaderType{newTable, delTable, newChain, delChain, newRule, delRule, newSet, delSet, newElement, delElement}

// Tables of iptables, which are of family ip or ip6, and their chains that the kernel
// calls.
var (
	xtables = []string{"nat", "mangle", "filter"}
	builtin = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
)

// Watch hears of changes of some tables from the moment that it is made.
type Watch struct {
	conn   *netlink.Conn
	names  []string
	chains string
}

// Chains has the Watch hear, too, of what becomes of chains whose names begin so among
// those of iptables, and of the kernel's own chains there, in which others' rules come
// and go. To be called before Run.
func (w *Watch) Chains(prefix string) { w.chains = prefix }

// NewWatch listens for tables of family inet and these names in ns (nil: the
// current namespace). Run must be called once.
func NewWatch(ns *netns.Handle, names ...string) (*Watch, error) {
	cfg := &netlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}
	if ns != nil {
		cfg.NetNS = ns.Fd()
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, cfg)
	if err != nil {
		return nil, fmt.Errorf("watch nft tables: %w", err)
	}
	return &Watch{conn: conn, names: names}, nil
}

// Run calls changed when a table may have another part, or one less: by somebody's `nft
// flush ruleset` or `nft insert rule`, or because it was written anew, our own writing
// included: whoever is called compares before he writes. It ends with ctx, without an
// error then.
func (w *Watch) Run(ctx context.Context, changed func()) error {
	defer func() { _ = w.conn.Close() }()
	// A deadline ends the wait; to close the socket meanwhile would not.
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		news, err := w.conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // more news than the socket holds
			changed()
		case err != nil:
			return fmt.Errorf("watch nft tables: %w", err)
		case slices.ContainsFunc(news, w.concerns):
			changed()
		}
	}
}

// concerns tells a change of one of the tables, or what happened to chains of iptables.
func (w *Watch) concerns(m netlink.Message) bool {
	if len(m.Data) < nfgenmsg {
		return false
	}
	attrs, err := netlink.UnmarshalAttributes(m.Data[nfgenmsg:])
	if err != nil {
		return false
	}
	if m.Data[0] == unix.NFPROTO_INET {
		return slices.Contains(changes, m.Header.Type) && slices.Contains(w.names, name(attrs, unix.NFTA_TABLE_NAME))
	}
	return w.chains != "" && w.concernsChain(m.Header.Type, attrs)
}

// concernsChain is about tables of iptables. In a chain of the kernel's own rules of others
// count too: one may stand before ours. That such a chain came, or has another policy, is
// no matter of ours.
func (w *Watch) concernsChain(kind netlink.HeaderType, attrs []netlink.Attribute) bool {
	chain := ""
	switch kind {
	case delTable:
		return slices.Contains(xtables, name(attrs, unix.NFTA_TABLE_NAME))
	case newChain, delChain:
		chain = name(attrs, unix.NFTA_CHAIN_NAME)
	case newRule, delRule:
		chain = name(attrs, unix.NFTA_RULE_CHAIN)
	}
	return kind != newChain && slices.Contains(builtin, chain) || chain != "" && strings.HasPrefix(chain, w.chains)
}

// name is a text among the attributes. A table's name is the first attribute's type in
// messages about tables, chains, rules and sets alike.
func name(attrs []netlink.Attribute, of uint16) string {
	for _, a := range attrs {
		if a.Type == of {
			return string(bytes.TrimRight(a.Data, "\x00"))
		}
	}
	return ""
}
