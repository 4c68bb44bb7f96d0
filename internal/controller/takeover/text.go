package takeover

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes the plan for people.
func (p *Plan) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	switch {
	case len(p.Parts) > 0:
		fmt.Fprintln(t, "Kube-OVN runs here:")
	case len(p.Unseen) > 0:
		fmt.Fprintln(t, "No program of Kube-OVN is seen in this cluster.")
	default:
		fmt.Fprintln(t, "No program of Kube-OVN runs in this cluster.")
	}
	for _, part := range p.Parts {
		fmt.Fprintf(t, "  %s %s/%s\t%s\n", part.Kind, part.Namespace, part.Name, part.Image)
	}
	if len(p.Objects) > 0 {
		counts := make([]string, len(p.Objects))
		for i, c := range p.Objects {
			counts[i] = fmt.Sprintf("%s %d", c.Kind, c.Count)
		}
		fmt.Fprintf(t, "\nObjects: %s\n", strings.Join(counts, ", "))
	}
	if len(p.Values) > 0 {
		fmt.Fprintln(t, "\nThe same networks, by `fairlead install`:")
	}
	for _, v := range p.Values {
		fmt.Fprintf(t, "  --set %s=%s\t%s\n", v.Name, strings.ReplaceAll(v.Value, ",", `\,`), v.From)
	}
	if len(p.Changes) > 0 {
		fmt.Fprintln(t, "\nWhat changes:")
	}
	for _, c := range p.Changes {
		fmt.Fprintf(t, "  %s\n", c)
	}
	p.conclusion(t)
	return t.Flush()
}

// conclusion says what stands in the way, and what may.
func (p *Plan) conclusion(t io.Writer) {
	switch {
	case p.Clear():
		fmt.Fprintln(t, "\nNothing stands in the way.")
	case len(p.Blocks) > 0:
		fmt.Fprintln(t, "\nIn the way, for nobody carries it out:")
	}
	for _, b := range p.Blocks {
		fmt.Fprintf(t, "  %s\t%s\n", b.What, b.Why)
	}
	if len(p.Unseen) > 0 {
		fmt.Fprintf(t, "\nWhether something stands in the way is not known: you may not see %s.\n", strings.Join(p.Unseen, ", "))
	}
}
