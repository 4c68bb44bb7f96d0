package rules

import (
	"fmt"
	"strings"
)

func lower(s string) string { return strings.ToLower(s) }

// IPTables is the rule as iptables-save prints it, without the chain: what is read
// back compares with it byte by byte.
func (r Rule) IPTables() string {
	var b words
	b.when(r.Src.IsValid(), "-s", r.Src.String())
	b.when(r.Dst.IsValid(), "-d", r.Dst.String())
	b.when(r.In != "", "-i", r.In)
	b.when(r.Out != "", "-o", r.Out)
	b.when(r.Proto != "", "-p", r.Proto)
	b.when(r.Comment != "", "-m comment --comment", quoted(r.Comment))
	b.when(r.Port != 0, "-m", r.Proto, "--dport", fmt.Sprint(r.Port))
	b.when(r.Flags != AnyFlags, "-m tcp", map[Flags]string{
		NotSYN: "! --tcp-flags FIN,SYN,RST,ACK SYN", SYN: "--tcp-flags SYN,RST SYN", RST: "--tcp-flags RST RST",
	}[r.Flags])
	b.when(r.ToNode, "-m addrtype --dst-type LOCAL")
	for _, m := range r.Sets {
		b.add("-m set")
		b.when(m.Not, "!")
		b.add("--match-set", m.Set, m.Dir)
	}
	b.when(r.State != AnyState, "-m conntrack --ctstate", map[State]string{New: "NEW", Invalid: "INVALID", Translated: "DNAT"}[r.State])
	if r.Mark.Mask != 0 {
		b.add("-m mark")
		b.when(r.Mark.Not, "!")
		b.add("--mark", r.Mark.iptables())
	}
	b.add(r.Do.iptables()...)
	return b.String()
}

// iptables is the mark, with its mask unless that is all of it.
func (m Mark) iptables() string {
	if m.Mask == every {
		return fmt.Sprintf("%#x", m.Value)
	}
	return fmt.Sprintf("%#x/%#x", m.Value, m.Mask)
}

// iptables is the end of a rule, which says what is done.
func (a Action) iptables() []string {
	switch a.Verb {
	case Accept, Drop, Return:
		return []string{"-j", map[Verb]string{Accept: "ACCEPT", Drop: "DROP", Return: "RETURN"}[a.Verb]}
	case Reject:
		return []string{"-j REJECT --reject-with tcp-reset"}
	case Jump:
		return []string{"-j", a.Chain}
	case SetMark:
		return []string{"-j MARK --set-xmark", fmt.Sprintf("%#x/%#x", a.Mark.Value, a.Mark.Mask)}
	case Masquerade:
		return []string{"-j MASQUERADE --random-fully"}
	case SNAT:
		return []string{"-j SNAT --to-source", a.To.String(), "--random-fully"}
	case Proxy:
		return []string{"-j TPROXY --on-port", fmt.Sprint(a.Port), "--on-ip", a.To.String(), "--tproxy-mark", fmt.Sprintf("%#x/%#x", a.Mark.Value, a.Mark.Mask)}
	case MSS:
		if a.Size == 0 {
			return []string{"-j TCPMSS --clamp-mss-to-pmtu"}
		}
		return []string{"-j TCPMSS --set-mss", fmt.Sprint(a.Size)}
	}
	return nil // of Count
}

// quoted is a comment as iptables-save writes it.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return `"` + s + `"`
}

// words are what a rule is made of.
type words []string

func (w *words) add(s ...string) { *w = append(*w, s...) }

func (w *words) when(on bool, s ...string) {
	if on {
		w.add(s...)
	}
}

func (w words) String() string { return strings.Join(w, " ") }
