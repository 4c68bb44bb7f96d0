package view

import (
	"encoding/json"
	"io"

	"github.com/fairlead/fairlead/api/agent"
)

// Query is a command that asks the agent one question and shows the answer.
type Query struct {
	Under            string // the command that this one is a subcommand of; "": none
	Use, Short, Long string // of the command
	Path             string // of the agent's API
	Read             func(answer []byte) (Answer, error)
}

// Answer is what the agent answered.
type Answer struct {
	Value any                            // as -o json shows it
	Text  func(io.Writer, Options) error // for people
	// Failed: the answer tells of something that is not as it should be, and the
	// exit code does too.
	Failed bool
	// Unknown: what was asked about is not known, and the exit code says so.
	Unknown bool
	Code    int // of a program that has answered itself; there is no Text then
}

// ExitCode is the one that says how an answer turned out.
func (a Answer) ExitCode(failed, unknown int) int {
	switch {
	case a.Unknown:
		return unknown
	case a.Failed:
		return failed
	}
	return a.Code
}

// Queries are all of them: a new one is a row here, with its text.
func Queries() []Query {
	return []Query{{
		Use: "status", Short: "Whether the agent is ready, and what it waits for; exit code 1 when not ready",
		Path: agent.PathStatus, Read: reads(Status, func(s agent.Status) bool { return !s.Ready }),
	}, {
		Under: "ip", Use: "leaks", Short: "Addresses on this node that no living attachment holds; exit code 1 when there are any",
		Long: `Addresses on this node that no living attachment holds: those of the agent's own
pools, and those of host-local's folders for the networks that it knows. Each is
listed with the owner that is recorded, why it is left over, and the command that
frees it. Nothing is changed. Unproven is one whose owner the agent does not know.`,
		Path: agent.PathLeaks, Read: reads(Leaks, func(l agent.LeakList) bool { return len(l.Items)+len(l.Failed) > 0 }),
	}, {
		Under: "get", Use: "vfs", Short: "Virtual functions of this node's cards: who has which, with what, and which kubelet may give; exit code 1 when one cannot be looked at",
		Path: agent.PathVFs, Read: reads(VFs, func(l agent.VFList) bool { return len(l.Failed) > 0 }),
	}}
}

// reads makes the Read of answers that are a T.
func reads[T any](text func(io.Writer, T, Options) error, failed func(T) bool) func([]byte) (Answer, error) {
	return func(answer []byte) (Answer, error) {
		var v T
		if err := json.Unmarshal(answer, &v); err != nil {
			return Answer{}, err
		}
		return Answer{Value: v, Text: func(w io.Writer, o Options) error { return text(w, v, o) }, Failed: failed(v)}, nil
	}
}

// Leaks lists the addresses that nobody who lives holds.
func Leaks(w io.Writer, list agent.LeakList, _ Options) error {
	p := &page{}
	unproven := 0
	for _, l := range list.Items {
		in := "Subnet " + l.Subnet
		if l.File != "" {
			in = "host-local network " + l.Network + ", " + l.File
		}
		owner := ref(l.AttachmentRef)
		if l.Container == "" {
			owner = "nobody"
		}
		if l.Unproven {
			unproven++
		}
		p.line("%s (%s) held for %s: %s", l.Address, in, owner, l.Reason)
		p.line("    next: %s", l.Free)
	}
	for _, f := range list.Failed {
		p.line("cannot tell: %s", f)
	}
	p.line("%d held for nobody who lives, %d of them unproven", len(list.Items), unproven)
	return p.end(w)
}
