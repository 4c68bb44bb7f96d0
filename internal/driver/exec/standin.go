package exec

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Upstream's plugins free less when they are called without a namespace than
// what they made outside of it (containernetworking/plugins v1.9.1): bridge and
// ptp keep what masquerades the pod's addresses, and bridge the rules of its MAC
// check, because they learn the addresses from the pod's interface alone; tuning
// keeps its file below /run/cni/tuning; host-device does not call its IPAM plugin.
// So bridge, ptp and tuning get another namespace in the place of the one that is
// gone, empty but for an interface of that name with the recorded addresses: for
// them it is a pod that is there. It needs no memory of ours but the record.

// wantsStandIn tells whether DEL of a plugin without namespace leaves something.
func wantsStandIn(x core.Exec) bool {
	var c struct {
		IPMasq        bool `json:"ipMasq"`
		MACSpoofCheck bool `json:"macspoofchk"`
	}
	switch x.Type {
	case "tuning":
		return true
	case "bridge", "ptp":
		return json.Unmarshal(x.Conf, &c) == nil && (c.IPMasq || c.MACSpoofCheck && x.Type == "bridge")
	}
	return false
}

// delWithoutNetns is del for a plugin whose pod's namespace is gone.
func (d *Driver) delWithoutNetns(ctx context.Context, c invocation) error {
	switch {
	case insideOnly(c.exec.Type):
		return nil
	case wantsStandIn(c.exec):
		return d.delInStandIn(ctx, c)
	}
	_, err := d.call(ctx, c)
	if err != nil || c.exec.Type != "host-device" || d.inside(c.exec.Type, c.exec.Path, c.exec.Conf, false) != nil {
		return err
	}
	kind, err := cniconf.IPAMType(c.exec.Conf)
	if err != nil || kind == "" {
		return err
	}
	conf, err := cniconf.WithPrev(c.exec.Conf, c.prev)
	if err == nil {
		_, err = d.ipam(c, conf)(ctx, core.Del)
	}
	return err
}

func (d *Driver) delInStandIn(ctx context.Context, c invocation) error {
	addrs, err := c.outsideAddrs(ctx)
	if err != nil {
		return fmt.Errorf("addresses of the pod that is gone: %w", err)
	}
	ns, err := standIn(c.key.IfName, addrs)
	if err != nil {
		return fmt.Errorf("namespace in the place of the pod's: %w", err)
	}
	defer func() { _ = ns.Close() }()
	c.netns = core.Netns{Path: ns.ProcPath()}
	_, err = d.call(ctx, c)
	return err
}

// natPrograms are those by which upstream's plugins masquerade. nobodys (RFC 5737,
// RFC 3849) stands where no address is known: they remove the chain of a family
// only where the interface has an address of it, be it another.
var natPrograms = []struct {
	name    string
	nobodys netip.Prefix
}{
	{"iptables", netip.MustParsePrefix("192.0.2.1/32")},
	{"ip6tables", netip.MustParsePrefix("2001:db8::1/128")},
}

// outsideAddrs are the addresses that rules of the node may name: those of the
// recorded result or, of an ADD that never came so far, of the rules themselves.
func (v invocation) outsideAddrs(ctx context.Context) ([]netip.Prefix, error) {
	if len(v.exec.Prev) > 0 {
		l, err := cniconf.LinkFromResult(v.exec.Prev, v.key.IfName)
		if err != nil && !errors.Is(err, core.ErrNotFound) {
			return nil, err
		}
		if len(l.Addrs) > 0 {
			return l.Addrs, nil
		}
	}
	chain := fmt.Sprintf("CNI-%x", sha512.Sum512([]byte(v.exec.Network+v.key.Container)))[:maxChain]
	var out []netip.Prefix
	for _, p := range natPrograms {
		rules, err := natRules(ctx, p.name, "POSTROUTING")
		if err != nil {
			return nil, err
		}
		sources := sourcesOf(rules, chain)
		if len(sources) == 0 { // an ADD that was killed may have made the chain alone
			rules, err := natRules(ctx, p.name, chain)
			if err != nil {
				return nil, err
			}
			if rules != "" {
				sources = []netip.Prefix{p.nobodys}
			}
		}
		out = append(out, sources...)
	}
	if len(out) == 0 {
		out = []netip.Prefix{natPrograms[0].nobodys} // ptp looks at no rule without an address
	}
	return out, nil
}

// maxChain is how much of a chain's name upstream uses, as iptables allows it.
const maxChain = 28

// natRules lists a chain of the table nat, "" for one that is not there. A
// program that is not there, or that says no, has made no rule for a plugin either.
func natRules(ctx context.Context, program, chain string) (string, error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", program, "-w", "5", "-t", "nat", "-S", chain)
	cmd.Env, cmd.Dir = []string{"PATH=" + searchPath}, "/"
	out, err := cmd.Output()
	if _, said := errors.AsType[*exec.ExitError](err); said && ctx.Err() == nil {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	return string(out), nil
}

// sourcesOf are the sources of the rules that lead to a chain.
func sourcesOf(rules, chain string) (out []netip.Prefix) {
	for line := range strings.Lines(rules) {
		words := strings.Fields(line)
		to, from := slices.Index(words, "-j"), slices.Index(words, "-s")
		if to < 0 || from < 0 || to+1 >= len(words) || words[to+1] != chain {
			continue
		}
		if p, err := netip.ParsePrefix(words[from+1]); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// standIn makes a namespace with an interface of that name and addresses. It is
// a veth, which bridge and ptp need too: no other module has to be there.
func standIn(name string, addrs []netip.Prefix) (*netns.Handle, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	if err := furnish(ns, name, addrs); err != nil {
		_ = ns.Close()
		return nil, err
	}
	return ns, nil
}

func furnish(ns *netns.Handle, name string, addrs []netip.Prefix) error {
	var have inproc.Result
	for _, a := range addrs {
		have.IPs = append(have.IPs, inproc.IP{Address: a})
	}
	conn, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l, err := conn.NewVeth(rtnl.Veth{Name: name, Peer: ns, PeerName: "fl-far-end"})
	if err != nil {
		return err
	}
	if err := ns.Do(func() error { return inproc.Set(have.Sysctls(name)) }); err != nil {
		return err
	}
	for _, a := range addrs {
		if err := conn.AddAddr(l.Index, a, true); err != nil {
			return err
		}
	}
	return nil
}
