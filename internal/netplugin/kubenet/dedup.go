package kubenet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/netplugin"
)

const dedupChain = "dedup"

// ensureDedup keeps a promiscuous bridge from sending pods twice what they send
// each other: as the bridge takes every frame, the node routes it too, and what
// it sends has the bridge's MAC. Only what is the node's own goes out with it:
// answers and translations from the gateway's addresses. In other modes there is
// no such table. The caller holds p.making.
func (p *Plugin) ensureDedup(ctx context.Context, mac core.MAC) error {
	rules := []string{}
	if p.settings.Hairpin == netplugin.PromiscuousBridge {
		rules = dedupRules(mac, p.store.CIDRs())
	}
	if slices.Equal(rules, p.rules) && p.rules != nil {
		return nil
	}
	err := p.conf.Host.Do(func() error {
		c, err := knftables.New(knftables.BridgeFamily, TableName)
		if err != nil {
			return err
		}
		return c.Run(ctx, dedupTransaction(c, rules))
	})
	if err != nil {
		return fmt.Errorf("nft table %s of bridges: %w", TableName, err)
	}
	p.rules = rules
	return nil
}

func dedupRules(mac core.MAC, cidrs []netip.Prefix) []string {
	var accept, drop []string
	for _, c := range cidrs {
		family := "ip6"
		if c.Addr().Is4() {
			family = "ip"
		}
		match := fmt.Sprintf("oifname \"veth*\" ether saddr %s %s saddr ", mac, family)
		accept = append(accept, match+gateway(c).String()+" accept")
		drop = append(drop, match+c.Masked().String()+" drop")
	}
	return append(accept, drop...)
}

// gateway is the bridge's address of a pod CIDR.
func gateway(c netip.Prefix) netip.Addr { return c.Masked().Addr().Next() }

// dedupTransaction replaces the table as a whole.
func dedupTransaction(c knftables.Interface, rules []string) *knftables.Transaction {
	tx := c.NewTransaction()
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	if len(rules) == 0 {
		return tx
	}
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("keeps " + Bridge + ", which is promiscuous, from answering for pods")})
	tx.Add(&knftables.Chain{
		Name: dedupChain, Type: knftables.PtrTo(knftables.FilterType),
		Hook: knftables.PtrTo(knftables.OutputHook), Priority: knftables.PtrTo(knftables.BaseChainPriority("0")),
	})
	for _, r := range rules {
		tx.Add(&knftables.Rule{Chain: dedupChain, Rule: r})
	}
	return tx
}
