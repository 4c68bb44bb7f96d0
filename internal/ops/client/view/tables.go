package view

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
)

// Pods writes one line per interface. PORT is the port on our bridge, which
// has the name of the interface on the node. Of a cluster, pods without
// interfaces have a line too.
func Pods(w io.Writer, list agent.PodList, o Options) error {
	if o.Cluster {
		return clusterPods(w, list, o)
	}
	t := newTable(w, o,
		[]string{"NAMESPACE", "POD", "INTERFACE", "NETWORK", "IP", "MAC", "VLAN", "RATE(in/out)", "PORT", "STATE", "AGE"},
		[]string{"CONTAINER", "MTU", "GATEWAY", "OFPORT", "NETNS"})
	for _, p := range list.Items {
		for _, a := range p.Attachments {
			podRows(t, o, p, a)
		}
	}
	return t.end()
}

func clusterPods(w io.Writer, list agent.PodList, o Options) error {
	t := newTable(w, o,
		[]string{"NAMESPACE", "POD", "INTERFACE", "NETWORK", "IP", "MAC", "STATE", "AGE", "NODE"}, []string{"MTU", "GATEWAY"})
	for _, p := range list.Items {
		for _, i := range interfacesOf(p) {
			t.row(o, []string{
				p.Namespace, p.Name, i.Name, i.Network, addrs(i.Addresses), i.MAC, p.State, age(p.Created, o.Now), p.Node,
			}, []string{number(i.MTU), join(i.Gateways)})
		}
	}
	return t.end()
}

// interfacesOf are a pod's interfaces, an empty one for none.
func interfacesOf(p agent.Pod) (out []agent.Interface) {
	for _, a := range p.Attachments {
		out = append(out, a.Interfaces...)
	}
	if len(out) == 0 {
		return []agent.Interface{{}}
	}
	return out
}

func podRows(t table, o Options, p agent.Pod, a agent.Attachment) {
	ifs := a.Interfaces
	if len(ifs) == 0 { // begun, nothing planned: it must be seen all the same
		ifs = []agent.Interface{{Name: a.IfName}}
	}
	for _, i := range ifs {
		t.row(o, []string{
			p.Namespace, p.Name, i.Name, i.Network, addrs(i.Addresses), i.MAC, number(i.VLAN),
			rate(i), i.HostIf, stateOf(a, i), age(a.Created, o.Now),
		}, []string{short(a.Container), number(i.MTU), join(i.Gateways), ofport(i.Port), a.Netns})
	}
}

// State is an attachment's condition in one word.
func State(a agent.Attachment) string {
	switch {
	case a.Orphan:
		return "orphan"
	case a.NetnsGone:
		return "netns-gone"
	case a.Phase == agent.Added && !a.Delivered:
		return "undelivered"
	}
	return a.Phase
}

// stateOf is the state of an attachment as far as one interface goes.
func stateOf(a agent.Attachment, i agent.Interface) string {
	if i.PortMissing && !a.Orphan && !a.NetnsGone {
		return "port-missing"
	}
	return State(a)
}

// rate is "towards the pod/from the pod", "" without any.
func rate(i agent.Interface) string {
	q := i.QoS
	if q == nil || q.IngressMbps == 0 && q.EgressMbps == 0 {
		return ""
	}
	star := ""
	if i.EgressUnenforced {
		star = "*"
	}
	return orNone(number(q.IngressMbps)) + "/" + orNone(number(q.EgressMbps)) + star + "Mbit"
}

// PodsNote explains the mark on rates, "" where the table has none. It stands
// apart so that the table stays rows only.
func PodsNote(list agent.PodList) string {
	for _, p := range list.Items {
		for _, a := range p.Attachments {
			if slices.ContainsFunc(a.Interfaces, func(i agent.Interface) bool { return i.EgressUnenforced }) {
				return "* " + unenforced + "; `fairlead doctor` says why"
			}
		}
	}
	return ""
}

// unenforced is what becomes of a rate that the kernel cannot police.
const unenforced = "stored, not enforced by this kernel"

func ofport(p *agent.Port) string {
	if p == nil {
		return ""
	}
	return number(p.OFPort)
}

// Nets writes one line per network.
func Nets(w io.Writer, list agent.NetList, o Options) error {
	t := newTable(w, o,
		[]string{"NETWORK", "PLUGINS", "SUBNET", "DEFAULT", "INTERFACES", "STATE"},
		[]string{"CNIVERSION", "SOURCE", "PROBLEM"})
	for _, n := range list.Items {
		state, interfaces := "ok", strconv.Itoa(n.Interfaces)
		if n.Uncounted {
			interfaces = ""
		}
		if n.Problem != "" {
			state = "unusable"
		}
		t.row(o, []string{n.Name, strings.Join(n.Plugins, ","), n.Subnet, yes(n.Default), interfaces, state},
			[]string{n.CNIVersion, n.Source, n.Problem})
	}
	return t.end()
}

// Subnets writes one line per subnet and family: the counts are per family.
func Subnets(w io.Writer, list agent.SubnetList, o Options) error {
	t := newTable(w, o,
		[]string{"SUBNET", "CIDR", "GATEWAY", "VLAN", "USED", "FREE", "TOTAL", "NAT", "DEFAULT"},
		[]string{"PROVIDER", "MTU", "EXCLUDED", "IMPLIED", "EXCLUDE"})
	for _, s := range list.Items {
		for i, cidr := range s.CIDRs {
			gateway, used, free, total, out := "", "", "", "", ""
			if i < len(s.Gateways) {
				gateway = s.Gateways[i].String()
			}
			if i < len(s.Usage) {
				use := s.Usage[i]
				used, free, total, out = count(use.Used), count(use.Free), count(use.Total), count(use.Excluded)
			}
			t.row(o, []string{
				s.Name, cidr.String(), gateway, number(s.VLAN), used, free, total,
				yes(s.NATOutgoing), yes(s.Default),
			}, []string{s.Provider, number(s.MTU), out, yes(s.Implied), strings.Join(excluded(s.Exclude, cidr), ",")})
		}
	}
	return t.end()
}

// excluded are the ranges of the CIDR's family.
func excluded(ranges []string, cidr netip.Prefix) (out []string) {
	for _, r := range ranges {
		if strings.Contains(r, ":") == cidr.Addr().Is6() {
			out = append(out, r)
		}
	}
	return out
}

// count shortens what nobody reads digit by digit: an IPv6 pool has 2^64 and more.
func count(n uint64) string {
	switch {
	case n >= 1<<62:
		return ">4e18"
	case n >= 1e9:
		return fmt.Sprintf("%.1e", float64(n))
	}
	return strconv.FormatUint(n, 10)
}

// IPs writes one line per address.
func IPs(w io.Writer, list agent.IPList, o Options) error {
	if o.Cluster {
		return clusterIPs(w, list, o)
	}
	t := newTable(w, o,
		[]string{"IP", "SUBNET", "NAMESPACE", "POD", "INTERFACE", "MAC", "VLAN", "PORT", "STATE"},
		[]string{"CONTAINER", "OFPORT"})
	for _, i := range list.Items {
		t.row(o, []string{i.Address.String(), i.Subnet, i.Namespace, i.Pod, i.IfName, i.MAC, number(i.VLAN), i.HostIf, i.State},
			[]string{short(i.Container), number(i.OFPort)})
	}
	return t.end()
}

func clusterIPs(w io.Writer, list agent.IPList, o Options) error {
	t := newTable(w, o, []string{"IP", "SUBNET", "NAMESPACE", "POD", "INTERFACE", "MAC", "STATE", "NODE"}, nil)
	for _, i := range list.Items {
		t.row(o, []string{i.Address.String(), i.Subnet, i.Namespace, i.Pod, i.IfName, i.MAC, i.State, i.Node}, nil)
	}
	return t.end()
}

// Who answers in sentences: which pod has the address, through which port or on
// which node.
func Who(w io.Writer, who agent.Who, o Options) error {
	p := &page{}
	switch {
	case len(who.Items) > 0:
	case o.Cluster:
		p.line("%s is neither of a pod's network-status nor in a Subnet", who.Address)
	default:
		p.line("%s is in no subnet of this node", who.Address)
	}
	for _, i := range who.Items {
		p.line("%s %s", who.Address, meaning(i))
		if i.State != agent.IPHeld {
			continue
		}
		if i.HostIf != "" {
			p.line("  port       %s%s%s", i.HostIf, labelled(", OpenFlow port ", i.OFPort), labelled(", VLAN ", i.VLAN))
		}
		p.line("  mac        %s", orNone(i.MAC))
		if o.Cluster {
			p.line("  node       %s", orNone(i.Node))
		} else {
			p.line("  container  %s", orNone(i.Container))
		}
	}
	return p.end(w)
}

func meaning(i agent.IP) string {
	pod := i.Namespace + "/" + i.Pod
	if i.Object != "" {
		return recorded(i)
	}
	switch i.State {
	case agent.IPHeld:
		subnet := "no subnet of ours"
		if i.Subnet != "" {
			subnet = "subnet " + i.Subnet
		}
		return fmt.Sprintf("is %s of pod %s (%s)", i.IfName, pod, subnet)
	case agent.IPReleased:
		return fmt.Sprintf("is free in subnet %s; pod %s held it last", i.Subnet, pod)
	case agent.IPGateway:
		return fmt.Sprintf("is the gateway of subnet %s", i.Subnet)
	case agent.IPExcluded:
		return fmt.Sprintf("is excluded from subnet %s", i.Subnet)
	}
	return fmt.Sprintf("is free in subnet %s", i.Subnet)
}

func labelled(label string, n int) string {
	if n == 0 {
		return ""
	}
	return label + strconv.Itoa(n)
}

// Interfaces writes one line per interface of a pod: what an attachment made.
func Interfaces(w io.Writer, list []agent.Interface) error {
	t := newTable(w, Options{}, []string{"INTERFACE", "NETWORK", "MAC", "IP", "GATEWAY"}, nil)
	for _, i := range list {
		t.row(Options{}, []string{i.Name, i.Network, i.MAC, join(i.Addresses), join(i.Gateways)}, nil)
	}
	return t.end()
}

// Attached writes a CNI result (0.3.0 or later) as one line per interface of
// the sandbox; a result in an older form is written as it is.
func Attached(w io.Writer, result []byte) error {
	var r struct {
		Interfaces []struct{ Name, Mac, Sandbox string } `json:"interfaces"`
		IPs        []struct {
			Interface        *int
			Address, Gateway string
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.Interfaces) == 0 {
		_, err := fmt.Fprintf(w, "%s\n", result)
		return err
	}
	t := newTable(w, Options{}, []string{"INTERFACE", "MAC", "IP", "GATEWAY"}, nil)
	for n, i := range r.Interfaces {
		if i.Sandbox == "" {
			continue
		}
		var ips, gws []string
		for _, ip := range r.IPs {
			if ip.Interface != nil && *ip.Interface == n {
				ips = append(ips, ip.Address)
				gws = append(gws, orNone(ip.Gateway))
			}
		}
		t.row(Options{}, []string{i.Name, i.Mac, strings.Join(ips, ","), strings.Join(gws, ",")}, nil)
	}
	return t.end()
}
