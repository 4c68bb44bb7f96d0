package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
)

// gate is a chain through which pods' traffic to and from the world passes and
// which drops what none of its rules accepts.
type gate struct {
	family string // as nft says: ip, ip6, inet
	where  string // for people
	rules  string // as its program lists them
	insert string // command that puts a rule in front, without the rule
	legacy bool   // rules are in the words of iptables, not of nft
	// iptables: the chain is one of iptables' own, so the command is too.
	iptables bool
}

// checkForward finds filters that drop forwarded packets unless a rule says
// otherwise, as Docker sets them: pods then reach each other and their gateway,
// and nothing beyond. Rules that accept a subnet in another way than by its
// prefix are not understood, hence a warning.
func checkForward(ctx context.Context, m *machine) outcome {
	gates, err := m.gates(ctx)
	if err != nil {
		return warn("nft list ruleset", "packet filters cannot be read: %v", err)
	}
	if len(gates) == 0 {
		return good("no filter drops forwarded packets by default")
	}
	nets, known := m.podNetworks(ctx)
	var where, next []string
	for _, g := range gates {
		missing := g.missing(nets)
		if !known {
			missing = g.examples()
		}
		if len(missing) > 0 {
			where, next = append(where, g.where), append(next, missing...)
		}
	}
	if len(where) == 0 {
		return good("filters that drop by default accept the pods' networks")
	}
	return warn(strings.Join(next, "; "), "%s drops what no rule accepts: pods may not reach the world outside", strings.Join(where, ", "))
}

// podNetworks are those whose traffic the node forwards; false without an agent.
func (m *machine) podNetworks(ctx context.Context) (nets []netip.Prefix, known bool) {
	if !m.agentUp {
		return nil, false
	}
	list, err := m.cfg.Agent.Subnets(ctx)
	if err != nil {
		return nil, false
	}
	for _, s := range list.Items {
		if !s.Implied {
			nets = append(nets, s.CIDRs...)
		}
	}
	return nets, true
}

// gates lists the chains that drop by default, of nftables (with iptables-nft)
// and of the older kernel interface of iptables.
func (m *machine) gates(ctx context.Context) ([]gate, error) {
	out, err := m.cfg.Run(ctx, Command{Argv: []string{"nft", "-j", "list", "chains"}})
	if errors.Is(err, fs.ErrNotExist) {
		return m.legacyGates(ctx), nil // the check of nftables tells
	}
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Chain *struct{ Family, Table, Name, Hook, Policy string } `json:"chain"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("read answer of `nft -j list chains`: %w", err)
	}
	var gates []gate
	for _, i := range list.Items {
		c := i.Chain
		if c == nil || c.Hook != "forward" || c.Policy != "drop" {
			continue
		}
		rules, err := m.cfg.Run(ctx, Command{Argv: []string{"nft", "list", "chain", c.Family, c.Table, c.Name}})
		if err != nil {
			return nil, err
		}
		g := gate{
			family: c.Family, where: fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table),
			rules: string(rules), insert: fmt.Sprintf("nft insert rule %s %s %s", c.Family, c.Table, c.Name),
		}
		if program := map[string]string{"ip": "iptables", "ip6": "ip6tables"}[c.Family]; program != "" && c.Table == "filter" && c.Name == "FORWARD" {
			g.iptables, g.insert = true, program+" -I FORWARD"
		}
		gates = append(gates, g)
	}
	return append(gates, m.legacyGates(ctx)...), nil
}

// legacyGates asks iptables only where its tables are in use: asking loads
// their modules otherwise.
func (m *machine) legacyGates(ctx context.Context) (gates []gate) {
	for _, f := range []struct{ family, names, program string }{
		{"ip", "/proc/net/ip_tables_names", "iptables"}, {"ip6", "/proc/net/ip6_tables_names", "ip6tables"},
	} {
		names, err := os.ReadFile(f.names)
		if err != nil || !strings.Contains(string(names), "filter") {
			continue
		}
		for _, program := range []string{f.program + "-legacy", f.program} {
			rules, err := m.cfg.Run(ctx, Command{Argv: []string{program, "-S", "FORWARD"}})
			if err != nil {
				continue
			}
			if strings.Contains(string(rules), "-P FORWARD DROP") {
				gates = append(gates, gate{
					family: f.family, where: program + "' chain FORWARD", rules: string(rules), insert: program + " -I FORWARD", legacy: true, iptables: true,
				})
			}
			break
		}
	}
	return gates
}

// missing are the commands that let the networks through that no rule accepts.
func (g gate) missing(nets []netip.Prefix) (commands []string) {
	for _, n := range nets {
		family := "ip"
		if n.Addr().Is6() {
			family = "ip6"
		}
		if g.family != family && g.family != "inet" {
			continue
		}
		for _, way := range []string{"s", "d"} {
			if !g.accepts(way, n.String()) {
				commands = append(commands, g.command(family, way, n.String()))
			}
		}
	}
	return commands
}

// examples are the commands for any network.
func (g gate) examples() []string {
	family := strings.Replace(g.family, "inet", "ip", 1)
	return []string{g.command(family, "s", "CIDR"), g.command(family, "d", "CIDR") + "   # for the CIDR of each Subnet"}
}

func (g gate) command(family, way, network string) string {
	if g.iptables {
		return fmt.Sprintf("%s -%s %s -j ACCEPT", g.insert, way, network)
	}
	return fmt.Sprintf("%s %s %saddr %s accept", g.insert, family, way, network)
}

// accepts looks for a rule that accepts a network as source or destination and
// has no other condition.
func (g gate) accepts(way, network string) bool {
	for line := range strings.Lines(g.rules) {
		words := strings.Fields(line)
		if g.legacy && strings.Join(words, " ") == fmt.Sprintf("-A FORWARD -%s %s -j ACCEPT", way, network) {
			return true
		}
		if len(words) < 4 || words[1] != way+"addr" || words[2] != network || words[len(words)-1] != "accept" {
			continue
		}
		// "ip saddr N accept", with a counter or without.
		if rest := words[3 : len(words)-1]; len(rest) == 0 || rest[0] == "counter" {
			return true
		}
	}
	return false
}
