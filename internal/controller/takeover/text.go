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
	if len(p.Parts) == 0 {
		fmt.Fprintln(t, "No program of Kube-OVN runs in this cluster.")
	} else {
		fmt.Fprintln(t, "Kube-OVN runs here:")
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
	if len(p.Blocks) == 0 {
		fmt.Fprintln(t, "\nNothing stands in the way.")
	} else {
		fmt.Fprintln(t, "\nIn the way, for nobody carries it out:")
	}
	for _, b := range p.Blocks {
		fmt.Fprintf(t, "  %s\t%s\n", b.What, b.Why)
	}
	return t.Flush()
}
