package hostport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
)

// small tells a change that needs no program: elements of hash maps and sets of
// a table that is there. Intervals come with the first pod of a network and go
// with the last. The program nft writes them, because it reads back only the form
// that it writes.
func (c change) small() bool {
	interval := func(el element) bool {
		return slices.ContainsFunc(halves, func(h half) bool { return el.set == h.networks() })
	}
	return !c.all && !slices.ContainsFunc(c.remove, interval) && !slices.ContainsFunc(slices.Collect(maps.Keys(c.add)), interval)
}

// send does a small change over netlink, in one transaction. It starts no
// process, which is most of what an ADD would cost.
func (t *Table) send(c change) error {
	conn, err := t.dial()
	if err != nil {
		return err
	}
	var errs []error
	for _, el := range c.remove { // first: a port may go from one pod to another
		item, err := item(el, "")
		item.Val = nil
		errs = append(errs, err, conn.SetDeleteElements(t.setOf(el, false), []nftables.SetElement{item}))
	}
	for el, mark := range c.add {
		item, err := item(el, mark)
		errs = append(errs, err, conn.SetAddElements(t.setOf(el, el.value != ""), []nftables.SetElement{item}))
	}
	err = errors.Join(errs...)
	if err == nil {
		err = conn.Flush()
	}
	if err != nil { // it may hold the rest of an answer
		t.conn = nil
		_ = conn.CloseLasting()
	}
	return err
}

// dial opens the socket, or finds it open.
func (t *Table) dial() (*nftables.Conn, error) {
	if t.conn != nil {
		return t.conn, nil
	}
	opts := []nftables.ConnOption{nftables.AsLasting()}
	if t.cfg.Host != nil {
		opts = append(opts, nftables.WithNetNSFd(t.cfg.Host.Fd()))
	}
	conn, err := nftables.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("open nfnetlink: %w", err)
	}
	t.conn = conn
	return conn, nil
}

func (t *Table) setOf(el element, withValue bool) *nftables.Set {
	return &nftables.Set{
		Table: &nftables.Table{Name: t.cfg.Table, Family: nftables.TableFamilyINet}, Name: el.set, IsMap: withValue, Concatenation: true,
	}
}

func item(el element, mark string) (nftables.SetElement, error) {
	key, err := encode(el.key)
	if err != nil || el.value == "" {
		return nftables.SetElement{Key: key}, err
	}
	value, err := encode(el.value)
	return nftables.SetElement{Key: key, Val: value, Comment: mark}, err
}

// encode is a concatenation as the kernel has it: each part in network byte
// order, filled up to a multiple of four bytes.
func encode(text string) (out []byte, err error) {
	for _, part := range strings.Split(text, " . ") {
		if number, ok := numbers[part]; ok {
			out = append(out, number, 0, 0, 0)
		} else if a, err := netip.ParseAddr(part); err == nil {
			out = append(out, a.AsSlice()...)
		} else if port, err := strconv.ParseUint(part, 10, 16); err == nil {
			out = append(binary.BigEndian.AppendUint16(out, uint16(port)), 0, 0)
		} else {
			return nil, fmt.Errorf("encode %q: not a protocol, an address or a port", text)
		}
	}
	return out, nil
}
