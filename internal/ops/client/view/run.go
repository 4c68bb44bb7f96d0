package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
)

// run is what the node loop knows of a pod.
func (p *page) run(r agent.PodRun, o Options) {
	p.field(0, "Node", r.Node)
	p.field(0, "Source", strings.Join(slices.DeleteFunc([]string{r.Source, r.Origin}, empty), ", "))
	p.field(0, "State", life(r))
	if !r.Started.IsZero() {
		p.field(0, "Age", age(r.Started, o.Now))
	}
	p.field(0, "Address", strings.Join(r.Addresses, ", "))
	p.field(0, "Reason", strings.Join(slices.DeleteFunc([]string{r.Reason, r.Message}, empty), ": "))
	if r.LastError != "" {
		p.heading("Last error, %s ago%s", age(r.LastErrorAt, o.Now), due(", tried again ", r.RetryAt, o.Now))
		p.line("  %s", r.LastError)
	}
	for _, c := range r.Containers {
		p.container(c, o)
	}
	var unmet []agent.PodCondition
	for _, c := range r.Conditions {
		if c.Status != "True" {
			unmet = append(unmet, c)
		}
	}
	if len(unmet) > 0 {
		p.heading("Not met")
	}
	for _, c := range unmet {
		p.line("  %-27s %s", c.Type, strings.Join(slices.DeleteFunc([]string{c.Reason, c.Message}, empty), ": "))
	}
	p.events(r.Events, o)
}

// life says what the loop does with the pod: "Running", "Pending, is ended".
func life(r agent.PodRun) string {
	out := r.Phase
	switch {
	case r.Life == agent.RunTerminating:
		out += ", is being ended"
	case r.Life == agent.RunTerminated && r.Gone:
		out += ", has ended and is being removed"
	case r.Life == agent.RunTerminated:
		out += ", has ended"
	}
	if r.Unclaimed {
		out += " (as it was known before the restart; its source has not answered since)"
	}
	return out
}

func (p *page) container(c agent.ContainerRun, o Options) {
	kind := "Container"
	if c.Init {
		kind = "Init container"
	}
	if c.Ephemeral {
		kind = "Ephemeral container"
	}
	p.heading("%s %s", kind, c.Name)
	p.field(2, "State", strings.Join(slices.DeleteFunc([]string{c.State, c.Reason}, empty), ", ")+since(c.Since, o.Now)+due(", next try ", c.RetryAt, o.Now))
	p.field(2, "Message", strings.TrimSpace(c.Message))
	if c.ExitCode != nil {
		p.field(2, "Exit code", fmt.Sprint(*c.ExitCode))
	}
	p.field(2, "Ready", map[bool]string{true: "yes", false: "no"}[c.Ready])
	if c.Restarts > 0 {
		p.field(2, "Restarts", fmt.Sprint(c.Restarts))
	}
	p.field(2, "Image", c.Image)
	p.field(2, "ID", short(c.ID))
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", since " + age(t, now)
}

// due says when something is to happen: in how long, and at what time.
func due(label string, t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	if !t.After(now) {
		return label + "now"
	}
	return label + "in " + span(t.Sub(now)) + ", at " + t.Local().Format(time.TimeOnly)
}
