package view

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
)

// Leases is a table of leases.
func Leases(w io.Writer, list agent.LeaseList, o Options) error {
	t := newTable(w, o, []string{"DOMAIN", "ADDRESS", "PHASE", "POD", "INTERFACE", "NODE", "SINCE"}, []string{"DECLARED BY", "SANDBOX", "BOOT", "DEVICE", "EPOCH", "REASON"})
	for _, l := range list.Items {
		t.row(o, []string{l.Domain, l.Address + l.MAC, l.Phase, leasePod(l), l.Interface, l.Node, leaseSince(l)},
			[]string{l.DeclaredBy, l.Sandbox, l.BootID, l.Device, strconv.FormatInt(l.Epoch, 10), l.Reason})
	}
	return t.end()
}

func leasePod(l agent.Lease) string { return strings.Trim(l.Namespace+"/"+l.Pod, "/") }

func leaseSince(l agent.Lease) string {
	if l.Since.IsZero() {
		return ""
	}
	return l.Since.UTC().Format(time.RFC3339)
}

// Lease is all that is known of leases, one after the other.
func Lease(w io.Writer, list agent.LeaseList) error {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-13s %s\n", name+":", Printable(value))
		}
	}
	for i, l := range list.Items {
		if i > 0 {
			b.WriteByte('\n')
		}
		line("Lease", l.Name)
		line("Domain", l.Domain)
		line("Address", l.Address)
		line("MAC", l.MAC)
		line("Phase", strings.TrimSpace(l.Phase+" "+leaseSince(l)))
		line("Reason", l.Reason)
		line("Message", l.Message)
		line("For", strings.TrimSpace(leasePod(l)+" "+l.Interface))
		line("Declared by", l.DeclaredBy)
		if l.Sandbox != "" {
			line("Holder", fmt.Sprintf("sandbox %s on node %s", l.Sandbox, l.Node))
			line("Pod UID", l.PodUID)
			line("Boot", l.BootID)
			line("Device", l.Device)
			if l.SelfFence {
				line("Self-fence", "the node takes it off the network when it cannot renew its heartbeat")
			}
		}
		line("Epoch", strconv.FormatInt(l.Epoch, 10))
		if s := l.Stolen; s != nil {
			line("Taken", fmt.Sprintf("from sandbox %s by %s at %s: %s", s.From, s.By, s.At, s.Reason))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
