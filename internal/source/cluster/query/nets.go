package query

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/source/catalog"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// object is an object whose spec others read.
type object struct {
	head
	Spec   json.RawMessage `json:"spec"`
	Status struct {
		Conditions []v1.Condition `json:"conditions"`
	} `json:"status"`
}

// spec fills to.
func (o object) spec(to any) error {
	if len(o.Spec) == 0 {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(o.Spec, to)
}

// Nets lists the default network and the NetworkAttachmentDefinitions, with the
// number of interfaces that pods of the whole cluster have on them.
func (c *Client) Nets(ctx context.Context, s Scope) (agent.NetList, error) {
	var found []catalog.NAD
	var faults []string
	err := each(ctx, c, question{Kind: nads, Scope: s}, func(o object) {
		var spec struct {
			Config string `json:"config"`
		}
		fault := ""
		if err := o.spec(&spec); err != nil {
			fault = "spec: " + err.Error()
		}
		found = append(found, catalog.NAD{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Config: spec.Config, Source: "API server"})
		faults = append(faults, fault)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return agent.NetList{}, err
	}
	pools, err := c.pools(ctx)
	known, err := c.lacking(err, "SUBNET is not shown")
	if err != nil {
		return agent.NetList{}, err
	}
	out := agent.NetList{Items: []agent.Net{catalog.Default(pools)}}
	for i, nad := range found {
		n := catalog.Net(nad, pools, known)
		if faults[i] != "" {
			n.Problem = faults[i]
		}
		out.Items = append(out.Items, n)
	}
	return out, c.count(ctx, out.Items)
}

// count fills in the interfaces on each network.
func (c *Client) count(ctx context.Context, nets []agent.Net) error {
	at := map[string]*agent.Net{}
	for i := range nets {
		at[nets[i].Name] = &nets[i]
	}
	err := c.attached(ctx, func(_ head, n agent.NetworkStatus) {
		if net := at[n.Name]; net != nil {
			net.Interfaces++
		} else if n.Default { // whatever name the runtime's configuration gives it
			nets[0].Interfaces++
		}
	})
	known, err := c.lacking(err, "INTERFACES are not counted")
	for i := range nets {
		nets[i].Uncounted = !known
	}
	return err
}

// attached calls use for each interface of each pod of the cluster. It needs the
// pods' metadata only.
func (c *Client) attached(ctx context.Context, use func(head, agent.NetworkStatus)) error {
	return each(ctx, c, question{Kind: pods, fields: alive, heads: true}, func(h head) {
		for _, n := range c.networks(h) {
			use(h, n)
		}
	})
}

// Subnets lists the pools of addresses, and how many of each the pods of the
// cluster hold.
func (c *Client) Subnets(ctx context.Context) (agent.SubnetList, error) {
	pools, err := c.pools(ctx)
	if err != nil {
		return agent.SubnetList{}, err
	}
	out := agent.SubnetList{Items: []agent.Subnet{}}
	use, err := c.usage(ctx, pools)
	if _, err = c.lacking(err, "addresses are not counted"); err != nil {
		return agent.SubnetList{}, err
	}
	for _, s := range pools {
		item := catalog.Subnet(s)
		item.Usage = append(item.Usage, use[s.Name]...)
		out.Items = append(out.Items, item)
	}
	return out, nil
}

// usage counts as the agent does: each interface is a lease.
func (c *Client) usage(ctx context.Context, pools []core.Subnet) (map[string][]agent.Usage, error) {
	var leases []core.Lease
	err := c.attached(ctx, func(h head, n agent.NetworkStatus) {
		bySubnet := map[string][]netip.Addr{}
		for _, ip := range addresses(n.IPs) {
			if s := containing(pools, ip); s != nil {
				bySubnet[s.Name] = append(bySubnet[s.Name], ip)
			}
		}
		for subnet, ips := range bySubnet {
			leases = append(leases, core.Lease{Subnet: subnet, IPs: ips, Owner: core.Owner{
				Key: core.Key{Container: h.Metadata.UID, IfName: n.Interface + "/" + n.Name},
				Pod: core.Pod{Namespace: h.Metadata.Namespace, Name: h.Metadata.Name},
			}})
		}
	})
	if err != nil {
		return nil, err
	}
	held := ipam.New()
	_ = held.Restore(leases, nil) // an address that two pods have is one address
	out := map[string][]agent.Usage{}
	for _, st := range held.Stats(pools) {
		out[st.Subnet] = append(out[st.Subnet], agent.Usage{
			Family: st.Family, Total: st.Total, Used: st.Used, Free: st.Free, Excluded: st.Excluded,
		})
	}
	return out, nil
}

// containing is the pool that an address is of; those in force do not overlap.
func containing(pools []core.Subnet, ip netip.Addr) *core.Subnet {
	for i := range pools {
		if slices.ContainsFunc(pools[i].CIDRs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return &pools[i]
		}
	}
	return nil
}

// declared is a Subnet as it stands.
type declared struct {
	declare.Subnet
	object
}

// InForce are the Subnets in force, by name.
func (c *Client) InForce(ctx context.Context) ([]core.Subnet, error) { return c.pools(ctx) }

// pools are the Subnets in force, as an agent that starts now would have them.
// What is not in force as written is noted.
func (c *Client) pools(ctx context.Context) ([]core.Subnet, error) {
	all, withheld, err := c.declared(ctx)
	if err != nil {
		return nil, err
	}
	vids, err := c.vlans(ctx, all)
	if err != nil {
		return nil, err
	}
	decls := make([]*declare.Subnet, len(all))
	for i := range all {
		decls[i] = &all[i].Subnet
	}
	book, refused := declare.Book{}.Next(decls, vids)
	for _, d := range all {
		if f, is := refused[d.Name]; is {
			c.refused("Subnet", d.object, f.String())
		}
	}
	serving, blamed := book.Serving(withheld)
	if blamed != "" {
		c.note("Subnet " + blamed + ": " + declare.BlamedReason)
	}
	return serving, nil
}

// declared are the Subnets that are right by themselves, the oldest first;
// withheld tells that one which is wrong is meant to be the default.
func (c *Client) declared(ctx context.Context) (all []declared, withheld bool, err error) {
	err = each(ctx, c, question{Kind: subnets}, func(o object) {
		var spec v1.SubnetSpec
		if err := o.spec(&spec); err != nil {
			c.refused("Subnet", o, "spec: "+err.Error())
			return
		}
		if v1.Shown(o.Metadata.Annotations, spec) {
			return
		}
		d, faults := declare.ReadSubnet(o.Metadata.Name, spec)
		if len(o.Status.Conditions) == 0 { // no controller has looked at it
			faults = append(faults, declare.NeedsOVN(spec)...)
		}
		for _, f := range faults {
			c.refused("Subnet", o, f.String())
		}
		if len(faults) > 0 {
			withheld = withheld || spec.Default || o.Metadata.Name == v1.DefaultSubnet
			return
		}
		all = append(all, declared{d, o})
	})
	if apierrors.IsNotFound(err) {
		err = nil // the kind is not served: there is none
	}
	slices.SortStableFunc(all, func(a, b declared) int { return a.Metadata.Created.Compare(b.Metadata.Created) })
	return all, withheld, err
}

func (c *Client) refused(kind string, o object, reason string) {
	c.note(fmt.Sprintf("%s %s is not in force as written: %s", kind, o.Metadata.Name, reason))
}

// vlans are the Vlans, where a Subnet names one. Where they may not be
// seen the Subnets are shown without.
func (c *Client) vlans(ctx context.Context, all []declared) (map[string]declare.Vlan, error) {
	if !slices.ContainsFunc(all, func(d declared) bool { return d.Vlan != "" }) {
		return nil, nil
	}
	out := map[string]declare.Vlan{}
	err := each(ctx, c, question{Kind: vlans}, func(o object) {
		var spec v1.VlanSpec
		if err := o.spec(&spec); err != nil {
			c.refused("Vlan", o, "spec: "+err.Error())
			return
		}
		v, faults := declare.ReadVlan(spec)
		for _, f := range faults {
			c.refused("Vlan", o, f.String())
		}
		if len(faults) == 0 {
			out[o.Metadata.Name] = v
		}
	})
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	known, err := c.lacking(err, "VLAN is not shown")
	for i := range all {
		if !known {
			all[i].Vlan = ""
		}
	}
	return out, err
}
