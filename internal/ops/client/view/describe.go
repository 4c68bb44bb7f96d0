package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
)

// page is text in sections: a heading, and below it labels with values.
type page struct {
	strings.Builder
}

// line writes one line, whatever the values hold.
func (p *page) line(format string, args ...any) {
	p.WriteString(strings.TrimRight(Printable(fmt.Sprintf(format, args...)), " ") + "\n")
}

// field writes one line; a value that is not there is left out.
func (p *page) field(indent int, label, value string) {
	if value != "" {
		p.line("%s%-*s %s", strings.Repeat(" ", indent), 13-indent, label+":", value)
	}
}

func (p *page) heading(format string, args ...any) {
	if p.Len() > 0 {
		p.line("")
	}
	p.line(format, args...)
}

// end writes the page.
func (p *page) end(w io.Writer) error {
	if _, err := io.WriteString(w, p.String()); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

// Describe writes all that is known of a pod.
func Describe(w io.Writer, pod agent.Pod, o Options) error {
	p := &page{}
	p.field(0, "Pod", pod.Namespace+"/"+pod.Name)
	p.field(0, "UID", pod.UID)
	if pod.Run != nil {
		p.run(*pod.Run, o)
	}
	if o.Cluster {
		p.clusterPod(pod, o)
		return p.end(w)
	}
	if len(pod.Attachments) == 0 {
		if pod.Run != nil {
			p.heading("Networks")
		}
		p.field(0, "Attachments", "none")
	}
	for _, a := range pod.Attachments {
		p.attachment(a, o)
	}
	if f := pod.LastFailure; f != nil {
		p.failure(*f, o)
	}
	return p.end(w)
}

// clusterPod is what the Kubernetes API says, and where the rest is to be had.
func (p *page) clusterPod(pod agent.Pod, o Options) {
	p.field(0, "Node", pod.Node)
	p.field(0, "State", pod.State)
	p.field(0, "Age", age(pod.Created, o.Now))
	if len(pod.Requested) > 0 {
		p.heading("Requested")
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Requested)) {
		p.line("  %s: %s", key, pod.Requested[key])
	}
	for _, a := range pod.Attachments {
		p.heading("Networks")
		for _, i := range a.Interfaces {
			p.iface(i, addrs(i.Addresses))
		}
	}
	if len(pod.Conditions) > 0 {
		p.heading("Conditions")
	}
	for _, c := range pod.Conditions {
		p.line("  %-27s %-7s %s", c.Type, c.Status, strings.Join(slices.DeleteFunc([]string{c.Reason, c.Message}, empty), ": "))
	}
	p.events(pod.Events, o)
	if pod.Node != "" {
		p.heading("What took how long, and why an ADD failed, knows node %s:", pod.Node)
		p.line("  fairlead describe pod %s/%s --node-local", pod.Namespace, pod.Name)
		p.line("where its agent is a pod, by `kubectl -n NAMESPACE exec POD -- fairlead ...` with the NAMESPACE and POD that this gives:")
		p.line("  kubectl get pods -A -l app.kubernetes.io/name=fairlead --field-selector spec.nodeName=%s", pod.Node)
	}
}

func (p *page) events(events []agent.PodEvent, o Options) {
	if len(events) > 0 {
		p.heading("Events")
	}
	for _, e := range events {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		p.line("  %-7s %-7s %s: %s%s", age(e.When, o.Now), e.Type, e.Reason, e.Note, times)
	}
}

func (p *page) attachment(a agent.Attachment, o Options) {
	p.heading("Attachment %s/%s", a.Container, a.IfName)
	p.field(2, "State", State(a))
	p.field(2, "Called as", a.Network)
	p.field(2, "Netns", a.Netns)
	p.field(2, "Age", age(a.Created, o.Now))
	p.field(2, "Error", a.Error)
	p.field(2, "Problem", a.Problem)
	for _, i := range a.Interfaces {
		p.iface(i, join(i.Addresses))
	}
	p.timeline("ADD", a.Timeline)
	for _, plug := range a.HotPlugged {
		p.timeline("hot plug of "+plug.IfName+", "+age(plug.When, o.Now)+" ago", plug.Timeline)
	}
}

func (p *page) iface(i agent.Interface, addresses string) {
	p.line("  Interface %s", i.Name)
	network := i.Network
	if i.Default {
		network += " (the cluster default)"
	}
	p.field(4, "Network", network)
	p.field(4, "Driver", strings.Join(slices.DeleteFunc([]string{i.Driver, i.NICType, strings.Join(i.Plugins, ",")}, empty), ", "))
	p.field(4, "Subnet", i.Subnet)
	p.field(4, "Address", strings.ReplaceAll(addresses, ",", ", "))
	p.field(4, "Gateway", strings.ReplaceAll(join(i.Gateways), ",", ", "))
	for _, r := range i.Routes {
		p.field(4, "Route", route(r))
	}
	p.field(4, "MAC", i.MAC)
	p.field(4, "MTU", number(i.MTU))
	p.field(4, "VLAN", number(i.VLAN))
	for _, line := range qos(i) {
		p.field(4, "Rate", line)
	}
	missing := ""
	if i.PortMissing {
		missing = i.HostIf + ", missing in Open vSwitch"
	}
	p.field(4, "Port", cmp.Or(port(i.Port), missing, i.HostIf))
	if i.DNS != nil {
		p.field(4, "DNS", strings.Join(i.DNS.Nameservers, ", "))
	}
	if i.Mirror {
		p.field(4, "Mirror", "yes")
	}
	if vips := strings.ReplaceAll(join(i.VIPs), ",", ", "); vips != "" {
		p.field(4, "VIPs", vips)
	}
	p.field(4, "Security", i.PortSecurity)
	for _, h := range i.HostPorts {
		p.field(4, "Host port", hostPort(h))
	}
	for _, w := range i.Warnings {
		p.field(4, "Warning", w)
	}
}

func empty(s string) bool { return s == "" }

func route(r agent.Route) string {
	if !r.GW.IsValid() {
		return r.Dst.String() + " on-link"
	}
	return r.Dst.String() + " via " + r.GW.String()
}

// hostPort says where from and where to: "198.51.100.2:8080/tcp to port 80".
func hostPort(h agent.HostPort) string {
	at := strconv.Itoa(int(h.HostPort))
	if h.HostIP.IsValid() {
		at = netip.AddrPortFrom(h.HostIP, h.HostPort).String()
	}
	return fmt.Sprintf("%s/%s to port %d", at, h.Protocol, h.ContainerPort)
}

// qos is a line per direction, with units.
func qos(i agent.Interface) (lines []string) {
	q := i.QoS
	if q == nil {
		return nil
	}
	direction := func(label string, mbps, burst int, note string) {
		if mbps > 0 {
			lines = append(lines, fmt.Sprintf("%s %d Mbit/s%s%s", label, mbps, unit(", burst ", burst, " Mbit"), note))
		}
	}
	note := ""
	if i.EgressUnenforced {
		note = " (" + unenforced + ")"
	}
	direction("towards the pod", q.IngressMbps, q.IngressBurstMbit, "")
	direction("from the pod", q.EgressMbps, q.EgressBurstMbit, note)
	netem := unit(", latency ", q.LatencyMs, " ms") + unit(", jitter ", q.JitterMs, " ms") +
		unit(", limit ", q.LimitPackets, " packets") + unit(", loss ", q.LossPercent, " %")
	if netem != "" {
		note := ""
		if i.DelayUnenforced {
			note = " (" + unenforced + ")"
		}
		lines = append(lines, strings.TrimPrefix(netem, ", ")+note)
	}
	return lines
}

func unit(label string, n int, suffix string) string {
	if n == 0 {
		return ""
	}
	return labelled(label, n) + suffix
}

func port(p *agent.Port) string {
	if p == nil {
		return ""
	}
	parts := []string{p.Name}
	switch {
	case p.OFPort > 0:
		parts = append(parts, "OpenFlow port "+strconv.Itoa(p.OFPort))
	case p.OFPort < 0:
		parts = append(parts, "refused by Open vSwitch")
	}
	if p.LinkState != "" {
		parts = append(parts, "link "+p.LinkState)
	}
	if p.Error != "" {
		parts = append(parts, p.Error)
	}
	return strings.Join(parts, ", ")
}

func (p *page) failure(f agent.Failure, o Options) {
	p.heading("Last failure: %s of %s/%s, %s ago", f.Op, short(f.Container), f.IfName, age(f.When, o.Now))
	code := strconv.FormatUint(uint64(f.Code), 10)
	if text := cni.Codes[f.Code]; text != "" {
		code += " (" + text + ")"
	}
	p.field(2, "Code", code)
	p.field(2, "Cause", f.Cause)
	p.field(2, "Next", f.Hint)
	p.timeline(f.Op, f.Timeline)
}

// bar is the width of the longest operation, in characters.
const bar = 40

// timeline draws each step as a bar from its start to its end, so that one
// sees what waited for what. A step shorter than a character still shows.
func (p *page) timeline(op string, steps []agent.Step) {
	if len(steps) == 0 {
		return
	}
	// In the order in which they began; one that contains others began first
	// and ended last.
	steps = slices.SortedStableFunc(slices.Values(steps), func(a, b agent.Step) int {
		return cmp.Or(cmp.Compare(a.StartMs, b.StartMs), cmp.Compare(b.TookMs, a.TookMs))
	})
	var total float64
	width := 0
	for _, s := range steps {
		total = max(total, s.StartMs+s.TookMs)
		width = max(width, len(s.Name))
	}
	p.line("  Timeline of the %s, %s ms", op, millis(total))
	for _, s := range steps {
		from, to := cells(s, total)
		failed := ""
		if s.Error != "" {
			failed = "  failed: " + s.Error
		}
		p.line("    %-*s |%s%s%s| %s ms%s", width, s.Name,
			strings.Repeat(" ", from), strings.Repeat("█", to-from), strings.Repeat(" ", bar-to), millis(s.TookMs), failed)
	}
}

// cells are the first and the end cell of a step's bar; never none, never
// outside the frame.
func cells(s agent.Step, total float64) (from, to int) {
	if total <= 0 {
		return 0, 1
	}
	scale := func(ms float64) int { return int(math.Round(ms / total * bar)) }
	from = min(max(scale(s.StartMs), 0), bar-1)
	return from, min(max(scale(s.StartMs+s.TookMs), from+1), bar)
}

func millis(ms float64) string { return strconv.FormatFloat(ms, 'f', 2, 64) }

// repairText is one line about what somebody changed.
func repairText(r agent.Repair, now time.Time) string {
	text := fmt.Sprintf("Changed by somebody else, put right %s ago", span(now.Sub(r.When)))
	if r.Error != "" {
		text = fmt.Sprintf("Changed by somebody else, NOT put right %s ago", span(now.Sub(r.When)))
	}
	if r.Times > 1 {
		text += fmt.Sprintf(" (%d times)", r.Times)
	}
	text += ": " + r.What + ": " + r.Found
	if r.Error != "" {
		text += ": " + r.Error
	}
	if r.Next.After(now) {
		text += "; it goes on, so the next time is in " + span(r.Next.Sub(now))
	}
	return text
}

// Status writes how the agent is.
func Status(w io.Writer, s agent.Status, o Options) error {
	p := &page{}
	ready := "yes"
	if !s.Ready {
		ready = "NO"
	}
	p.field(0, "Agent", strings.TrimSpace(s.Version+" "+short(s.Commit)))
	p.field(0, "Node", s.Node)
	p.field(0, "Uptime", span(o.Now.Sub(s.Started)))
	p.field(0, "Ready", ready)
	for _, c := range s.Conditions {
		p.line("  %s %-9s %s", mark(c.OK), c.Name, c.Reason)
	}
	p.field(0, "Pods", fmt.Sprintf("%d, %s, %s in flight", s.Pods, some(s.Attachments, "attachment"), some(s.InFlight, "operation")))
	p.field(0, "Waiting", some(len(s.Orphans), "orphan")+", "+some(s.Tombstones, "link")+" to be deleted")
	p.settings(s.Settings)
	for _, e := range s.Orphans {
		p.heading("Orphan %s of %s/%s: %s", e.Container+"/"+e.IfName, e.Namespace, e.Pod, e.Error)
	}
	for _, r := range s.Repairs {
		p.heading("%s", repairText(r, o.Now))
	}
	if len(s.Problems) > 0 {
		p.heading("Objects that are not in force as written (an earlier good version, if any, stays), or not served:")
	}
	for _, pr := range s.Problems {
		p.line("  %s%s: %s", pr.File, labelled(":", pr.Line), pr.Reason)
	}
	return p.end(w)
}

// some counts a noun.
func some(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

func (p *page) settings(s agent.Settings) {
	p.field(0, "Bridge", fmt.Sprintf("%s (%s) on %s", s.Bridge, orNone(s.Datapath), s.OVSDB))
	p.field(0, "MTU", number(s.MTU))
	p.field(0, "Objects", s.Objects)
	p.field(0, "State dir", s.StateDir)
	p.field(0, "Sockets", strings.Join(append([]string{s.Socket}, s.CompatSockets...), ", "))
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

// Detach writes what a detach by force has left.
func Detach(w io.Writer, r agent.DetachResult) error {
	p := &page{}
	for _, u := range r.Left {
		what := "what plugin " + u.Plugin + " made, on the node and in the namespace"
		if u.Plugin == "" {
			what = "of " + strings.TrimSpace(u.Driver+" "+u.HostIf) + "; `fairlead gc` sweeps ports and links that belong to nobody"
		}
		p.line("left %s of network %s: %s", u.IfName, u.Network, what)
		p.line("     %s", u.Error)
	}
	p.line("%s forgotten, its addresses are free, %s left", ref(r.AttachmentRef), some(len(r.Left), "part"))
	return p.end(w)
}

// Check writes the proof of a pod's attachments.
func Check(w io.Writer, r agent.CheckResult) error {
	p := &page{}
	for _, a := range r.Attachments {
		p.line("%s %s: interfaces %s", mark(a.OK), ref(a.AttachmentRef), orNone(strings.Join(a.Interfaces, ", ")))
		for _, d := range a.Differences {
			p.line("    %s", d)
		}
		if !a.OK {
			p.line("    next: repair it by hand, or create the pod again")
		}
	}
	return p.end(w)
}

func ref(a agent.AttachmentRef) string {
	pod := a.Namespace + "/" + a.Pod
	if pod == "/" {
		pod = "(no pod)"
	}
	return pod + " " + short(a.Container) + "/" + a.IfName
}
