package migrate

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/fairlead/fairlead/api/agent"
)

// printer aligns rows and keeps the first error.
type printer struct {
	tw  *tabwriter.Writer
	err error
}

func newPrinter(w io.Writer) *printer { return &printer{tw: tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)} }

// line writes one row; what others wrote into files steers no terminal.
func (p *printer) line(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, c)
		if c == "" {
			cells[i] = "-"
		}
	}
	_, err := fmt.Fprintln(p.tw, strings.Join(cells, "\t"))
	p.err = errors.Join(p.err, err)
}

// head begins a section; each is aligned by itself.
func (p *printer) head(title string) {
	p.err = errors.Join(p.err, p.tw.Flush())
	_, err := fmt.Fprintln(p.tw, "\n"+title)
	p.err = errors.Join(p.err, err, p.tw.Flush())
}

func (p *printer) end() error {
	if err := errors.Join(p.err, p.tw.Flush()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Text writes a plan for people.
func (p Plan) Text(w io.Writer) error {
	out := newPrinter(w)
	out.line("runtime's configuration", p.Runtime.Dir+"/"+p.Runtime.Winner, p.Runtime.Whose)
	out.line("Multus' configuration", p.Runtime.Multus, p.Runtime.Name)
	out.line("Fairlead's will be", p.Runtime.Writes, "import: "+p.Phase)
	multus := strings.Join(p.Multus.Processes, ", ")
	if p.Multus.Listening {
		multus += " " + p.Multus.Socket
	}
	out.line("Multus runs", yes(p.Multus.Here()), strings.TrimSpace(multus))
	if k := p.Kubeconfig; k != nil {
		out.line("Multus' kubeconfig", k.Path, "usable: "+yes(k.Usable)+" "+k.Why)
	}
	out.line("agent answers", p.Agent.Socket, strings.TrimSpace(yes(p.Agent.OK)+" "+p.Agent.Why))
	out.head("Plugins")
	out.line("TYPE", "PATH", "IS", "THEN")
	for _, b := range p.Binaries {
		out.line(b.Type, b.Path, b.Is, b.Then)
	}
	p.confText(out)
	p.recordText(out)
	if len(p.Notes) > 0 {
		out.head("Notes")
		for _, n := range p.Notes {
			out.line("! " + n)
		}
	}
	out.head("Verdict: " + p.Verdict)
	for _, b := range p.Blocks {
		out.line("✗ " + b.What)
		out.line("  next: " + b.Next)
	}
	if len(p.Blocks) == 0 {
		out.line("  next: " + p.Next)
	}
	return out.end()
}

// confText tells of the networks, and of keys only what has no effect.
func (p Plan) confText(out *printer) {
	if len(p.Networks) > 0 {
		out.head("Networks of every pod")
		out.line("ROLE", "NETWORK", "PLUGINS", "MISSING")
	}
	for _, n := range p.Networks {
		plugins := strings.Join(n.Plugins, ",")
		if n.Note != "" {
			plugins = n.Note
		}
		out.line(n.Role, n.Name, plugins, strings.Join(n.Missing, ","))
	}
	effect := []string{}
	for _, k := range p.Keys {
		if k.Effect {
			effect = append(effect, k.Name)
		}
	}
	if len(p.Keys) == 0 {
		return
	}
	out.head("Keys with effect: " + strings.Join(effect, " "))
	for _, k := range p.Keys {
		if k.Note != "" {
			out.line(k.Name, yes(k.Effect), k.Note)
		}
	}
}

func (p Plan) recordText(out *printer) {
	if len(p.Records) == 0 {
		return
	}
	out.head("Containers that Multus attached")
	out.line("POD", "CONTAINER", "INTERFACES", "ALIVE", "ADOPTABLE", "WHY NOT")
	for _, r := range p.Records {
		var ifs []string
		missing := ""
		for _, a := range r.Attachments {
			ifs = append(ifs, a.IfName+"="+a.Network+"("+strings.Join(a.Plugins, ",")+")")
			if len(a.Missing) > 0 {
				missing = "plugins missing: " + strings.Join(a.Missing, ",") + " "
			}
		}
		out.line(podName(r.Namespace, r.Pod), short(r.Container), strings.Join(ifs, " "), yes(r.Alive), yes(r.Adoptable), missing+r.Why)
	}
}

func podName(namespace, name string) string {
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// short is how runtimes show an id.
func short(id string) string { return id[:min(len(id), 13)] }

// Text writes a report for people.
func (r Report) Text(w io.Writer) error {
	out := newPrinter(w)
	for _, d := range r.Done {
		out.line(d)
	}
	if len(r.Done) == 0 {
		out.line("nothing was left to do")
	}
	if len(r.Containers) > 0 {
		out.head("Containers")
		out.line("POD", "CONTAINER", "STATE", "INTERFACES", "CHECK")
	}
	for _, c := range r.Containers {
		check := c.Reason
		if check == "" && c.State == agent.AdoptedNow {
			check = "as Multus made it"
		}
		if len(c.Differences) > 0 {
			check = strings.Join(c.Differences, "; ")
		}
		out.line(podName(c.Namespace, c.Pod), short(c.Container), c.State, strings.Join(c.Interfaces, ","), check)
	}
	if len(r.Left) > 0 {
		out.head("Only Fairlead can detach")
	}
	for _, e := range r.Left {
		out.line(podName(e.Namespace, e.Pod), short(e.Container), e.IfName, e.Reason)
	}
	for _, t := range r.Todo {
		out.head("next: " + t)
	}
	return out.end()
}
