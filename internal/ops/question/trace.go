package question

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/trace"
)

const traceHelp = `

DST is [NAMESPACE/]POD, an address, or svc/NAMESPACE/NAME. OVN is asked what it does
with the first packet (ovn-trace), and the switch of the pod's node, if that is this
one, what it has been told (ofproto/trace). No packet is sent. What could not be
asked stands below, with why. Exit code 1 where the packet does not arrive.`

// Step is a part of a packet's way.
type Step struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// Traced is a packet's way.
type Traced struct {
	From    string          `json:"from"`
	To      string          `json:"to"`
	Packet  trace.Packet    `json:"packet"`
	Steps   []Step          `json:"steps"`
	Switch  *trace.Switched `json:"switch,omitempty"` // of this node
	Arrives bool            `json:"arrives"`
	Verdict string          `json:"verdict"`
	Unasked []string        `json:"unasked,omitempty"`
}

func (t *Traced) step(where, format string, args ...any) {
	t.Steps = append(t.Steps, Step{where, fmt.Sprintf(format, args...)})
}

func (t *Traced) unasked(whom string, err error) {
	t.Unasked = append(t.Unasked, whom+": "+err.Error())
}

// tracing is one trace in the making.
type tracing struct {
	Asked
	pod      core.Pod
	protocol string
	port     int
	out      Traced
}

// traced answers `trace`.
func traced(ctx context.Context, a Asked) (view.Answer, error) {
	usual := "default"
	if a.API != nil {
		usual = a.API.Namespace()
	}
	pod, err := client.ParsePod(a.Args[0], cmp.Or(a.Flags["namespace"], usual))
	if err != nil {
		return view.Answer{}, err
	}
	t := &tracing{Asked: a, pod: pod, protocol: "icmp"}
	if len(a.Args) > 2 {
		if err := t.read(a.Args[2]); err != nil {
			return view.Answer{}, err
		}
	}
	t.out.From = "pod " + pod.String()
	if err := t.everywhere(ctx); err != nil {
		return view.Answer{}, err
	}
	answer := view.Answer{Value: t.out, Text: t.out.text}
	answer.Failed = !t.out.Arrives
	return answer, err
}

// read reads tcp:PORT, udp:PORT or icmp.
func (t *tracing) read(what string) error {
	protocol, number, has := strings.Cut(what, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	if what != "icmp" && (protocol != "tcp" && protocol != "udp" || !has || err != nil || port == 0) {
		return hint.Usagef("%q is none of tcp:PORT, udp:PORT and icmp", what)
	}
	t.protocol, t.port = protocol, int(port)
	return nil
}

// everywhere asks OVN where it is, and the node's switch.
func (t *tracing) everywhere(ctx context.Context) error {
	place, err := southOf(ctx, t.Asked)
	var sb *south
	if err == nil {
		sb, err = openSouth(ctx, place)
	}
	if err != nil {
		t.out.unasked("OVN's southbound database", err)
		return t.alone(ctx)
	}
	defer sb.Close()
	return t.logical(ctx, sb)
}

// text writes the way as a list, the verdict last.
func (t Traced) text(w io.Writer, _ view.Options) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight(view.Printable(fmt.Sprintf(format, args...)), " ") + "\n")
	}
	protocol := t.Packet.Protocol
	if t.Packet.Port != 0 {
		protocol += " port " + strconv.Itoa(t.Packet.Port)
	}
	line("%s (%s) to %s, %s", t.From, t.Packet.Src, t.To, protocol)
	for _, s := range t.Steps {
		line("  %-14s %s", s.Where, s.What)
	}
	for _, u := range t.Unasked {
		line("not asked: %s", u)
	}
	line("%s", t.Verdict)
	_, err := io.WriteString(w, b.String())
	return err
}
