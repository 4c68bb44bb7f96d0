package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
)

// outwardRow is the row of one part of the node's way out, as its agent tells of it; sound
// says what there is when nothing is in the way.
func outwardRow(name, part string, sound func(agent.Outward) string) check {
	return check{group: "Way out", name: name, run: func(_ context.Context, m *machine) outcome {
		switch {
		case !m.agentUp:
			return warn(startAgent, "only the agent knows it")
		case m.outwardErr != nil:
			return warn("fairlead status", "the agent does not tell: %v", m.outwardErr)
		}
		o := good("%s", sound(m.outward))
		for _, f := range m.outward.Faults {
			if f.Part != part {
				continue
			}
			if o.verdict == OK || o.verdict == Warning && f.Fatal { // the worst one leads
				o.details = append(o.details, o.found()...)
				o.reason, o.next, o.verdict = f.What, f.Next, map[bool]Verdict{true: Failed, false: Warning}[f.Fatal]
			} else {
				o.details = append(o.details, f.What+"; next: "+f.Next)
			}
		}
		if o.verdict == OK && len(m.outward.Unread) > 0 {
			return warn("fairlead describe node", "not all of it could be read: %s", strings.Join(m.outward.Unread, "; "))
		}
		return o
	}}
}

// found is the outcome as a line below another one.
func (o outcome) found() []string {
	if o.verdict == OK {
		return nil
	}
	return []string{o.reason + "; next: " + o.next}
}

func soundRules(o agent.Outward) string {
	times := 0
	for _, r := range o.Repairs {
		times += r.Times
	}
	text := fmt.Sprintf("%s: %d chains, %d sets as they should be", o.Filter, len(o.Chains), len(o.Sets))
	if times > 0 {
		text += fmt.Sprintf("; put right %d times", times)
	}
	return text
}

func soundNetworks(o agent.Outward) string {
	if len(o.Networks) == 0 {
		return "no provider network has a NIC here"
	}
	return fmt.Sprintf("%d have their NICs", len(o.Networks))
}

func soundWays(o agent.Outward) string {
	return fmt.Sprintf("%d lead pods to gateways of their Subnets", len(o.Ways))
}

func soundSysctls(o agent.Outward) string {
	return fmt.Sprintf("forwarding and rp_filter let the pods of %d Subnets out", len(o.Subnets))
}
