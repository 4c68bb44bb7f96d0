package query

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	fairleadv1 "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Annotations of Nodes, the reference's.
const (
	annNodeIP  = v1.DefaultProvider + v1.ProviderSuffix + v1.FieldIP
	annNodeMAC = v1.DefaultProvider + v1.ProviderSuffix + v1.FieldMAC
	annChassis = v1.DefaultProvider + v1.ProviderSuffix + "chassis"
)

// Subnet is all that is known of a Subnet; core.ErrNotFound without one. One that is
// not in force has no counts, and its conditions and a note say why.
func (c *Client) Subnet(ctx context.Context, name string) (agent.SubnetDetail, error) {
	o, err := c.Get(ctx, Subnets, "", name)
	if err != nil {
		return agent.SubnetDetail{}, err
	}
	var spec v1.SubnetSpec
	if err := Read(o.Spec, &spec); err != nil {
		return agent.SubnetDetail{}, fmt.Errorf("Subnet %s: spec: %w", name, err)
	}
	out := agent.SubnetDetail{
		Subnet: agent.Subnet{Name: name}, Vpc: cmp.Or(spec.Vpc, v1.DefaultVpc), Namespaces: spec.Namespaces,
		Private: spec.Private, AllowSubnets: spec.AllowSubnets, GatewayType: cmp.Or(spec.GatewayType, agent.Distributed),
		GatewayNode: spec.GatewayNode, States: map[string]int{}, Conditions: conditions(o), ExternalEgressGateway: spec.ExternalEgressGateway, Physical: spec.Vlan != "" && !spec.LogicalGateway,
	}
	var status v1.SubnetStatus
	_ = Read(o.Status, &status) // of a status that cannot be read no gateway is told
	out.ActivateGateway = status.ActivateGateway
	slices.SortStableFunc(spec.Acls, func(a, b v1.ACL) int { return cmp.Compare(b.Priority, a.Priority) })
	for _, a := range spec.Acls {
		out.ACLs = append(out.ACLs, fmt.Sprintf("%d %s %s: %s", a.Priority, a.Direction, a.Action, a.Match))
	}
	for _, r := range spec.NatOutgoingPolicy {
		out.NATRules = append(out.NATRules, strings.Join(strings.Fields(r.Action+" "+r.Match.SrcIPs+" to "+cmp.Or(r.Match.DstIPs, "anywhere")), " "))
	}
	m, err := c.Map(ctx, name)
	switch {
	case isNotFound(err):
		out.CIDRs, out.NATOutgoing, out.Default, out.Provider = prefixes(spec.CIDRBlock), spec.NatOutgoing, spec.Default, spec.Provider
		return out, nil
	case err != nil:
		return out, err
	}
	out.Subnet = m.Subnet
	for _, p := range m.Parts {
		if p.By != nil {
			out.States[cmp.Or(p.State, "unknown")]++
		}
	}
	kept, err := c.kept(ctx, name)
	for _, k := range kept {
		out.Pools = append(out.Pools, k.name)
	}
	return out, err
}

func prefixes(text string) (out []netip.Prefix) {
	for part := range strings.SplitSeq(text, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(part)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// conditions are those of an object's status.
func conditions(o Object) []agent.PodCondition {
	var status struct {
		Conditions []agent.PodCondition `json:"conditions"`
	}
	_ = Read(o.Status, &status) // of a status that cannot be read none are shown
	return status.Conditions
}

// Node is all that is known of a node's network; core.ErrNotFound without one.
func (c *Client) Node(ctx context.Context, name string) (agent.NodeDetail, error) {
	o, err := c.Get(ctx, Nodes, "", name)
	if err != nil {
		return agent.NodeDetail{}, err
	}
	out := agent.NodeDetail{Name: name, Addresses: NodeAddresses(o), Pods: []agent.NodePod{}, Chassis: o.Metadata.Annotations[annChassis]}
	out.Join = addresses(strings.Split(o.Metadata.Annotations[annNodeIP], ","))
	out.MAC = o.Metadata.Annotations[annNodeMAC]
	for _, have := range conditions(o) {
		if have.Type == "Ready" || have.Type == "NetworkUnavailable" {
			out.Conditions = append(out.Conditions, have)
		}
	}
	out.Certificate, err = c.certificate(ctx, name)
	if _, err = c.Lacking(err, "its certificate is not shown"); err != nil {
		return out, err
	}
	err = each(ctx, c, question{Kind: pods, fields: alive + ",spec.nodeName=" + name}, func(p pod) {
		n := agent.NodePod{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, State: p.state(len(c.networks(p.head)) > 0)}
		for _, i := range c.held(p, func(netip.Addr) bool { return true }) {
			n.Addresses = append(n.Addresses, i.Address)
		}
		if len(n.Addresses) == 0 {
			n.Addresses = told(p)
		}
		out.Pods = append(out.Pods, n)
	})
	_, err = c.lacking(err, "its pods are not shown")
	return out, err
}

// NodeAddresses are a Node's InternalIPs.
func NodeAddresses(o Object) (out []netip.Addr) {
	var status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	}
	if Read(o.Status, &status) != nil {
		return nil
	}
	for _, a := range status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == "InternalIP" {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// request is what is read of a CertificateSigningRequest.
type request struct {
	Spec struct {
		Request []byte `json:"request"`
		Signer  string `json:"signerName"`
	}
	Status struct {
		Conditions  []agent.PodCondition `json:"conditions"`
		Certificate []byte               `json:"certificate"`
	}
}

// certificate is the last one that a chassis asked for.
func (c *Client) certificate(ctx context.Context, node string) (found *agent.Certificate, err error) {
	var last time.Time
	err = c.Each(ctx, CSRs, Scope{}, func(o Object) {
		var r request
		if Read(o.Spec, &r.Spec) != nil || r.Spec.Signer != fairleadv1.SignerChassis || o.Metadata.Created.Before(last) || asksFor(r.Spec.Request) != node {
			return
		}
		_ = Read(o.Status, &r.Status) // one that cannot be read has nothing yet
		last = o.Metadata.Created
		found = r.outcome(o.Metadata.Name)
	})
	return found, err
}

// asksFor is the common name that a request asks for.
func asksFor(text []byte) string {
	block, _ := pem.Decode(text)
	if block == nil {
		return ""
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return r.Subject.CommonName
}

func (r request) outcome(name string) *agent.Certificate {
	out := &agent.Certificate{Request: name, State: "pending"}
	for _, have := range r.Status.Conditions {
		if have.Type == "Denied" || have.Type == "Failed" {
			out.State, out.Reason = strings.ToLower(have.Type), have.Message
		} else if have.Type == "Approved" && out.State == "pending" {
			out.State = "approved"
		}
	}
	if block, _ := pem.Decode(r.Status.Certificate); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out.State, out.End = "issued", cert.NotAfter
		}
	}
	return out
}

// isNotFound tells that something is not there.
func isNotFound(err error) bool { return errors.Is(err, core.ErrNotFound) }
