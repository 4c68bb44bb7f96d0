package server

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// View is where the operator's answers come from; every function reads memory
// only, but for Tombstones and Outward, which ask the kernel.
type View struct {
	Journal    *journal.Journal
	IPAM       *ipam.Allocator
	Source     resolve.Source
	Declared   resolve.Declarer
	Nets       func(context.Context) []agent.Net // without the count of interfaces
	NADs       func() []resolve.NAD
	Problems   func() []agent.Problem                  // objects that could not be read
	Conditions func(context.Context) []agent.Condition // readiness, in the API's order
	Port       func(hostIf string) (agent.Port, bool)
	// PortMissing: the switch can be asked and has no such port.
	PortMissing func(hostIf string) bool
	Tombstones  func() int
	Repairs     func() []agent.Repair
	Outward     func(context.Context) agent.Outward
	VFs         func() agent.VFList
	MTU         func() int64 // of new pods, in bytes
	Underlay    func() agent.Underlay
	// Unpoliced: the kernel does not enforce rates from pods.
	Unpoliced bool
	// Delays is nil where the kernel delays and loses packets as pods ask for.
	Delays func() error
	// Base is the part of the status that does not change: version, node,
	// start and settings.
	Base agent.Status
}

func (s *Server) operatorRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+agent.PathPods, s.servePods)
	mux.HandleFunc("GET "+agent.PathPod+"{namespace}/{name}", s.servePod)
	mux.HandleFunc("GET "+agent.PathPodNetworks, s.servePodNetworks)
	mux.HandleFunc("GET "+agent.PathSettings+"{namespace}/{name}", s.serveSettings)
	mux.HandleFunc("GET "+agent.PathNets, s.serveNets)
	mux.HandleFunc("GET "+agent.PathSubnets, s.serveSubnets)
	mux.HandleFunc("GET "+agent.PathIPs, s.serveIPs)
	mux.HandleFunc("GET "+agent.PathIP+"{address}", s.serveWho)
	mux.HandleFunc("GET "+agent.PathStatus, s.serveStatus)
	mux.HandleFunc("POST "+agent.PathGC, s.serveGC)
	mux.HandleFunc("GET "+agent.PathGC, s.servePreview)
	mux.HandleFunc("GET "+agent.PathLeaks, s.serveLeaks)
	mux.HandleFunc("GET "+agent.PathVFs, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.View.VFs()) })
	mux.HandleFunc("GET "+agent.PathOutward, func(w http.ResponseWriter, r *http.Request) { writeJSON(w, http.StatusOK, s.View.Outward(r.Context())) })
	mux.HandleFunc("POST "+agent.PathDetach, s.serveDetach)
	mux.HandleFunc("POST "+agent.PathCheck+"{namespace}/{name}", s.serveCheck)
	mux.HandleFunc("POST "+agent.PathMultusAdopt, s.multus(s.adopt))
	mux.HandleFunc("POST "+agent.PathMultusExport, s.multus(s.export))
	mux.HandleFunc("POST "+agent.PathMultusRelease, s.multus(s.release))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller is gone: nobody to tell
}

// refuse answers a failure in the API's form.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, core.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, core.ErrUnavailable):
		status = http.StatusServiceUnavailable
	case core.CodeOf(err) == core.CodeValue:
		status = http.StatusBadRequest
	}
	code := core.CodeOf(err)
	writeJSON(w, status, agent.Error{Code: code, Msg: err.Error(), Hint: agent.Hint(code)})
}

func (s *Server) servePods(w http.ResponseWriter, r *http.Request) {
	pods := s.pods(r.URL.Query().Get(agent.QueryNamespace))
	for i := range pods {
		for j := range pods[i].Attachments {
			pods[i].Attachments[j].Timeline, pods[i].Attachments[j].HotPlugged = nil, nil
		}
	}
	writeJSON(w, http.StatusOK, agent.PodList{Items: pods})
}

func (s *Server) servePod(w http.ResponseWriter, r *http.Request) {
	id := core.Pod{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	pod := agent.Pod{Namespace: id.Namespace, Name: id.Name, Attachments: []agent.Attachment{}}
	found := false
	for _, p := range s.pods(id.Namespace) {
		if p.Name == id.Name {
			pod, found = p, true
		}
	}
	if a, ok := s.View.Journal.Attempt(id); ok {
		found = true
		pod.LastFailure = &agent.Failure{
			Op: string(a.Op), Container: a.Key.Container, IfName: a.Key.IfName, When: a.When,
			Code: a.Code, Cause: a.Error, Hint: agent.Hint(a.Code), Timeline: steps(a.Timeline),
		}
	}
	_, err := s.View.Source.Pod(r.Context(), id)
	pod.Known = err == nil
	if !found {
		refuse(w, core.Errorf(core.CodeUnknown, "pod %s: %w on this node", id, core.ErrNotFound))
		return
	}
	writeJSON(w, http.StatusOK, pod)
}

// pods groups the journal's records by pod, in the API's order. Containers
// without a pod stand together under an empty name.
func (s *Server) pods(namespace string) []agent.Pod {
	byPod := map[core.Pod]*agent.Pod{}
	for _, rec := range s.View.Journal.Records() {
		if namespace != "" && rec.Pod.Namespace != namespace {
			continue
		}
		id := core.Pod{Namespace: rec.Pod.Namespace, Name: rec.Pod.Name}
		p := byPod[id]
		if p == nil {
			p = &agent.Pod{Namespace: id.Namespace, Name: id.Name, UID: rec.Pod.UID}
			byPod[id] = p
		}
		a := s.attachment(rec)
		a.NetnsGone = rec.Phase == core.Added && gone(rec.Netns.Path)
		p.Attachments = append(p.Attachments, a)
	}
	out := make([]agent.Pod, 0, len(byPod))
	for _, p := range byPod {
		slices.SortFunc(p.Attachments, func(a, b agent.Attachment) int {
			return compare(a.Container, b.Container, a.IfName, b.IfName)
		})
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b agent.Pod) int { return compare(a.Namespace, b.Namespace, a.Name, b.Name) })
	return out
}

// gone tells that no namespace is at path. It costs one system call: a list has
// a thousand pods. That the path names another namespace by now, CHECK finds.
func gone(path string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	return errors.Is(err, fs.ErrNotExist) || err == nil && st.Type != unix.NSFS_MAGIC
}

// serveNets counts the interfaces on each network that the source knows. The
// default network has the name that each runtime's configuration gives it.
func (s *Server) serveNets(w http.ResponseWriter, r *http.Request) {
	nets := s.View.Nets(r.Context())
	at := map[string]*agent.Net{}
	var def *agent.Net
	for i := range nets {
		at[nets[i].Name] = &nets[i]
		if nets[i].Default {
			def = &nets[i]
		}
	}
	for _, rec := range s.View.Journal.Records() {
		for _, i := range interfaces(rec) {
			if n := at[i.Network]; n != nil {
				n.Interfaces++
			} else if i.Default && def != nil {
				def.Interfaces++
			}
		}
	}
	writeJSON(w, http.StatusOK, agent.NetList{Items: nets})
}

func (s *Server) serveSubnets(w http.ResponseWriter, r *http.Request) {
	subnets, err := s.View.Source.Subnets(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	stats := s.View.IPAM.Stats(subnets)
	out := agent.SubnetList{Items: []agent.Subnet{}}
	for _, n := range subnets {
		item := agent.Subnet{
			Name: n.Name, Provider: n.Provider, CIDRs: n.CIDRs, Gateways: n.Gateways, VLAN: n.VLAN, MTU: n.MTU,
			NATOutgoing: n.NATOutgoing, Default: n.Default, Implied: n.Implied, Usage: []agent.Usage{},
		}
		for _, x := range n.Exclude {
			item.Exclude = append(item.Exclude, rangeText(x))
		}
		for _, st := range stats {
			if st.Subnet == n.Name {
				item.Usage = append(item.Usage, agent.Usage{
					Family: st.Family, Total: st.Total, Used: st.Used, Free: st.Free, Excluded: st.Excluded,
				})
			}
		}
		out.Items = append(out.Items, item)
	}
	writeJSON(w, http.StatusOK, out)
}

func rangeText(r core.AddrRange) string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + ".." + r.To.String()
}

func (s *Server) serveIPs(w http.ResponseWriter, r *http.Request) {
	namespace := r.URL.Query().Get(agent.QueryNamespace)
	out := agent.IPList{Items: []agent.IP{}}
	for _, l := range s.View.IPAM.Leases() {
		if namespace != "" && l.Owner.Pod.Namespace != namespace {
			continue
		}
		for _, ip := range l.IPs {
			out.Items = append(out.Items, s.heldIP(l, ip))
		}
	}
	slices.SortFunc(out.Items, func(a, b agent.IP) int { return a.Address.Compare(b.Address) })
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) heldIP(l core.Lease, ip netip.Addr) agent.IP {
	out := agent.IP{
		Address: ip, Subnet: l.Subnet, State: agent.IPHeld, Namespace: l.Owner.Pod.Namespace, Pod: l.Owner.Pod.Name,
		Container: l.Owner.Key.Container, IfName: l.Owner.Key.IfName, MAC: l.MAC.String(),
	}
	for _, rec := range s.View.Journal.Container(l.Owner.Key.Container) {
		for _, spec := range rec.Specs {
			if spec.Key != l.Owner.Key || spec.Kind() != core.KindNIC {
				continue
			}
			out.VLAN = spec.NIC.VLAN
			if carrier := spec.OVS(); carrier != nil {
				out.HostIf = carrier.HostIf
				if port, ok := s.View.Port(carrier.HostIf); ok {
					out.OFPort = port.OFPort
				}
			}
		}
	}
	return out
}

// serveWho tells every meaning of one address on this node.
func (s *Server) serveWho(w http.ResponseWriter, r *http.Request) {
	addr, err := netip.ParseAddr(r.PathValue("address"))
	if err != nil {
		refuse(w, core.Errorf(core.CodeValue, "address: %w", err))
		return
	}
	subnets, err := s.View.Source.Subnets(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	out := agent.Who{Address: addr, Items: []agent.IP{}}
	held := map[string]bool{}
	for _, l := range s.View.IPAM.Who(addr) {
		held[l.Subnet] = true
		out.Items = append(out.Items, s.heldIP(l, addr))
	}
	for _, n := range subnets {
		inside := slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
		if inside && !held[n.Name] {
			out.Items = append(out.Items, s.unheldIP(n, addr))
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// unheldIP tells what an address that nobody holds means in a subnet.
func (s *Server) unheldIP(n core.Subnet, addr netip.Addr) agent.IP {
	out := agent.IP{Address: addr, Subnet: n.Name, State: agent.IPFree}
	switch {
	case slices.Contains(n.Gateways, addr):
		out.State = agent.IPGateway
		return out
	case slices.ContainsFunc(n.Exclude, func(r core.AddrRange) bool { return r.Contains(addr) }):
		out.State = agent.IPExcluded
	}
	for _, rel := range s.View.Journal.Released() {
		if rel.Subnet == n.Name && slices.Contains(rel.IPs, addr) && out.State == agent.IPFree {
			out.State, out.Namespace, out.Pod = agent.IPReleased, rel.Pod.Namespace, rel.Pod.Name
			out.IfName, out.MAC = rel.IfName, rel.MAC.String()
		}
	}
	return out
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	st := s.View.Base
	st.UptimeSeconds = time.Since(st.Started).Seconds()
	st.Settings.MTU, st.Settings.Underlay = int(s.View.MTU()), new(s.View.Underlay())
	st.Conditions = s.View.Conditions(r.Context())
	st.Ready = true
	for _, c := range st.Conditions {
		if !c.OK && c.Name != agent.CheckObjects {
			st.Ready = false
		}
	}
	st.Problems, st.Repairs = s.View.Problems(), s.View.Repairs()
	st.Tombstones, st.InFlight = s.View.Tombstones(), s.Engine.InFlight()
	pods := map[string]bool{}
	for _, rec := range s.View.Journal.Records() {
		st.Attachments++
		pods[rec.Pod.String()] = true
		if rec.Orphan {
			st.Orphans = append(st.Orphans, agent.OrphanedEntry{AttachmentRef: ref(rec), Error: rec.Error})
		}
	}
	st.Pods = len(pods)
	writeJSON(w, http.StatusOK, st)
}

func (s *Server) serveLeaks(w http.ResponseWriter, _ *http.Request) {
	leaks, failed := s.leaks()
	writeJSON(w, http.StatusOK, agent.LeakList{Items: leaks, Failed: failed})
}

func (s *Server) serveDetach(w http.ResponseWriter, r *http.Request) {
	var in agent.Detach
	if err := readJSON(r, &in); err != nil {
		refuse(w, core.Errorf(core.CodeValue, "%w", err))
		return
	}
	rec, left, err := s.Engine.Force(r.Context(), core.Key{Container: in.Container, IfName: in.IfName})
	if err != nil {
		refuse(w, err)
		return
	}
	out := agent.DetachResult{AttachmentRef: ref(rec), Left: []agent.Undone{}}
	for _, u := range left {
		item := agent.Undone{
			IfName: u.Spec.Key.IfName, Network: u.Spec.Network, Driver: u.Spec.Driver, Error: u.Err.Error(),
		}
		if carrier := u.Spec.OVS(); carrier != nil {
			item.HostIf = carrier.HostIf
		}
		if u.Spec.Kind() == core.KindDelegate {
			item.Plugin = u.Spec.Exec.Type
		}
		out.Left = append(out.Left, item)
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Server) serveCheck(w http.ResponseWriter, r *http.Request) {
	id := core.Pod{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	out := agent.CheckResult{Namespace: id.Namespace, Pod: id.Name, OK: true, Attachments: []agent.CheckAttachment{}}
	for _, rec := range s.View.Journal.Records() {
		if rec.Pod.Namespace != id.Namespace || rec.Pod.Name != id.Name {
			continue
		}
		diffs := differences(s.Engine.Check(r.Context(), core.Request{Key: rec.Key}))
		out.OK = out.OK && len(diffs) == 0
		out.Attachments = append(out.Attachments, agent.CheckAttachment{
			AttachmentRef: ref(rec), OK: len(diffs) == 0, Interfaces: names(rec), Differences: diffs,
		})
	}
	if len(out.Attachments) == 0 {
		refuse(w, core.Errorf(core.CodeUnknown, "pod %s: %w on this node", id, core.ErrNotFound))
		return
	}
	writeJSON(w, http.StatusOK, out)
}
