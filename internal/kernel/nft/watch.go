package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// nfgenmsg is the length of the header before a message's attributes, in bytes.
const nfgenmsg = 4

// losses are the news that somebody removed a part of a table.
var losses = []netlink.HeaderType{
	unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE,
	unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELCHAIN,
	unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE,
	unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELSET,
	unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELSETELEM,
}

// Watch hears of the losses of some tables from the moment that it is made.
type Watch struct {
	conn  *netlink.Conn
	names []string
}

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
	return &Watch{conn, names}, nil
}

// Run calls lost when a table may have lost a part: by somebody's `nft flush
// ruleset`, or because it was written anew, our own writing included. It ends
// with ctx, without an error then.
func (w *Watch) Run(ctx context.Context, lost func()) error {
	defer func() { _ = w.conn.Close() }()
	// A deadline ends the wait; to close the socket meanwhile would not.
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		news, err := w.conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // more news than the socket holds
			lost()
		case err != nil:
			return fmt.Errorf("watch nft tables: %w", err)
		case slices.ContainsFunc(news, func(m netlink.Message) bool { return concerns(m, w.names) }):
			lost()
		}
	}
}

// concerns tells a loss of one of the tables. A table's name is the first
// attribute's type in messages about tables, chains, rules and sets alike.
func concerns(m netlink.Message, names []string) bool {
	if !slices.Contains(losses, m.Header.Type) || len(m.Data) < nfgenmsg || m.Data[0] != unix.NFPROTO_INET {
		return false
	}
	attrs, err := netlink.UnmarshalAttributes(m.Data[nfgenmsg:])
	return err == nil && slices.ContainsFunc(attrs, func(a netlink.Attribute) bool {
		return a.Type == unix.NFTA_TABLE_NAME && slices.Contains(names, string(bytes.TrimRight(a.Data, "\x00")))
	})
}
