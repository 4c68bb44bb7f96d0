package question

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ops/trace"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// binding is a logical port as the southbound database has it.
type binding struct {
	name, kind, datapath, chassis, peer string
	mac                                 string
	ips                                 []netip.Addr
	networks                            []netip.Prefix // of a router's port
	pod, node                           string
}

// String names what is behind the port.
func (b binding) String() string {
	switch {
	case b.pod != "":
		return "pod " + b.pod
	case b.node != "":
		return "node " + b.node
	}
	return "port " + b.name
}

// south is the southbound database, as far as a trace needs it.
type south struct {
	*rows.DB
	place    rows.Place
	bindings []binding
	from     binding           // the sender
	chassis  map[string]string // node by UUID
	tunnels  map[string]string // of a chassis, by UUID
}

// openSouth connects and reads all ports.
func openSouth(ctx context.Context, place rows.Place) (*south, error) {
	db, err := rows.Open(ctx, rows.Southbound, place, false)
	if err != nil {
		return nil, err
	}
	s := &south{DB: db, place: place, chassis: map[string]string{}, tunnels: map[string]string{}}
	if err := s.load(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

func (s *south) load(ctx context.Context) error {
	found, err := s.Select(ctx, "Port_Binding", []string{"logical_port", "type", "datapath", "chassis", "mac", "options", "external_ids"})
	if err != nil {
		return err
	}
	for _, r := range found {
		s.bindings = append(s.bindings, bindingOf(r))
	}
	all, err := s.Select(ctx, "Chassis", []string{"_uuid", "name", "encaps"})
	if err != nil {
		return err
	}
	for _, r := range all {
		s.chassis[rows.Text(r["_uuid"])] = rows.Text(r["name"])
		if s.tunnels[rows.Text(r["_uuid"])], err = tunnels(ctx, s.DB, rows.Texts(r["encaps"])); err != nil {
			return err
		}
	}
	return nil
}

func bindingOf(r ovsdb.Row) binding {
	ids := rows.Map(r["external_ids"])
	b := binding{
		name: rows.Text(r["logical_port"]), kind: rows.Text(r["type"]), datapath: rows.Text(r["datapath"]), chassis: rows.Text(r["chassis"]),
		peer: rows.Map(r["options"])["peer"], pod: ids["pod"], node: ids["node"],
	}
	for _, text := range rows.Texts(r["mac"]) {
		for i, word := range strings.Fields(text) {
			if ip, err := netip.ParseAddr(word); err == nil {
				b.ips = append(b.ips, ip)
			} else if p, err := netip.ParsePrefix(word); err == nil {
				b.networks = append(b.networks, p)
				b.ips = append(b.ips, p.Addr())
			} else if i == 0 {
				b.mac = word
			}
		}
	}
	return b
}

func (s *south) port(name string) (binding, bool) {
	return s.first(func(b binding) bool { return b.name == name })
}

func (s *south) first(fits func(binding) bool) (binding, bool) {
	if i := slices.IndexFunc(s.bindings, fits); i >= 0 {
		return s.bindings[i], true
	}
	return binding{}, false
}

// gateway is the router's port that a switch's ports send to for other networks.
func (s *south) gateway(datapath string, src netip.Addr) (binding, bool) {
	for _, b := range s.bindings {
		if b.datapath != datapath || b.peer == "" {
			continue
		}
		far, ok := s.port(b.peer)
		if ok && slices.ContainsFunc(far.networks, func(p netip.Prefix) bool { return p.Contains(src) }) {
			return far, true
		}
	}
	return binding{}, false
}

// target is where a packet is sent.
type target struct {
	ip      netip.Addr
	text    string
	backend string   // of a Service: the endpoint that is taken
	service string   // "" for none
	all     []string // its endpoints
	// local is a Service whose endpoints depend on the pod's node. ovn-trace does not know
	// what the names in its load balancer stand for: the packet is followed via its endpoint.
	local bool
	via   netip.AddrPort
}

// logical has OVN trace the packet.
func (t *tracing) logical(ctx context.Context, sb *south) error {
	name := t.pod.Name + "." + t.pod.Namespace
	from, ok := sb.port(name)
	if !ok {
		t.out.unasked("OVN", fmt.Errorf("it has no port %s", name))
		return t.alone(ctx)
	}
	sb.from = from
	to, err := t.target(ctx, sb)
	if err != nil {
		return err
	}
	if to.local && t.nobody(to) {
		return nil
	}
	p, err := t.packet(sb, from, to.ip, t.port)
	if err != nil {
		return err
	}
	t.out.Packet, t.out.To = p, to.text
	if to.via.IsValid() {
		if p, err = t.packet(sb, from, to.via.Addr(), int(to.via.Port())); err != nil {
			return err
		}
		to.ip = to.via.Addr()
	}
	text, err := t.Run(ctx, doctor.Command{Argv: traceArgs(sb.place, p, to.backend)})
	if err != nil {
		return hint.On(fmt.Errorf("ask ovn-trace: %w", err), "ovn-trace is of OVN's packages (Debian: ovn-common): run it where that is installed")
	}
	told := telling{t: t, sb: sb, from: from, to: to, rules: t.rules(ctx, sb, trace.Rules(trace.Read(string(text))))}
	told.path(trace.Read(string(text)))
	t.onNode(ctx, from, sb)
	return nil
}

// nobody tells of the endpoint of a Service that has others for each node, and is true
// where there is none for the sender's.
func (t *tracing) nobody(to target) bool {
	if to.backend != "" {
		t.out.step("Service", "%s: endpoint %s for the pod's node%s (spec.internalTrafficPolicy: Local, or hints)", to.service, to.backend, others(to))
		return false
	}
	t.out.To = to.text
	t.out.step("Service", "%s has no endpoint on the pod's node (spec.internalTrafficPolicy: Local)", to.service)
	t.out.Verdict = "DROPPED: Service " + to.service + " has no endpoint on the pod's node"
	return true
}

// traceArgs is ovn-trace's command line: every connection on the way is a new one.
func traceArgs(at rows.Place, p trace.Packet, backend string) []string {
	argv := append([]string{"ovn-trace", "--db=" + at.Endpoint, "--no-leader-only", "--detailed"}, tlsArgs(at.TLS)...)
	for range 8 {
		argv = append(argv, "--ct=new")
	}
	if backend != "" {
		argv = append(argv, "--lb-dst="+backend)
	}
	return append(argv, p.Datapath, p.Microflow())
}

func tlsArgs(t rows.TLS) (argv []string) {
	for flag, file := range map[string]string{"--private-key=": t.Key, "--certificate=": t.Certificate, "--ca-cert=": t.CA} {
		if file != "" {
			argv = append(argv, flag+file)
		}
	}
	slices.Sort(argv)
	return argv
}

// target finds what DST means: an address, a pod, or a Service.
func (t *tracing) target(ctx context.Context, sb *south) (target, error) {
	dst := t.Args[1]
	if ip, err := netip.ParseAddr(dst); err == nil {
		out := target{ip: ip, text: ip.String()}
		if b, ok := sb.first(func(b binding) bool { return b.kind == "" && slices.Contains(b.ips, ip) }); ok {
			out.text = fmt.Sprintf("%s (%s)", b, ip)
		}
		err := t.balanced(ctx, sb, &out, func(_ string, vip netip.AddrPort) bool { return vip.Addr() == ip && int(vip.Port()) == t.port })
		return out, err
	}
	if name, is := strings.CutPrefix(dst, "svc/"); is {
		return t.service(ctx, sb, name)
	}
	pod, err := client.ParsePod(dst, t.pod.Namespace)
	if err != nil {
		return target{}, err
	}
	b, ok := sb.port(pod.Name + "." + pod.Namespace)
	if !ok {
		return target{}, fmt.Errorf("pod %s has no port in OVN: %w", pod, core.ErrNotFound)
	}
	for _, ip := range b.ips {
		if ip.Is4() != t.On("ipv6") {
			return target{ip: ip, text: fmt.Sprintf("%s (%s)", b, ip)}, nil
		}
	}
	return target{}, fmt.Errorf("pod %s has no address of that family: %w", pod, core.ErrNotFound)
}

// service finds a Service by name.
func (t *tracing) service(ctx context.Context, sb *south, name string) (target, error) {
	pod, err := client.ParsePod(name, t.pod.Namespace) // the same form
	if err != nil {
		return target{}, err
	}
	if t.port == 0 {
		return target{}, hint.Usagef("a Service is reached by a port: tcp:PORT or udp:PORT")
	}
	out := target{}
	err = t.balanced(ctx, sb, &out, func(of string, vip netip.AddrPort) bool {
		return of == pod.String() && int(vip.Port()) == t.port && vip.Addr().Is4() != t.On("ipv6")
	})
	if err == nil && out.service == "" {
		err = fmt.Errorf("OVN has no Service %s with %s port %d: %w", pod, t.protocol, t.port, core.ErrNotFound)
	}
	out.text = fmt.Sprintf("Service %s (%s)", pod, out.ip)
	return out, err
}

// balanced adds the Service, if a load balancer has one that fits, and its first
// endpoint.
func (t *tracing) balanced(ctx context.Context, sb *south, out *target, fits func(service string, vip netip.AddrPort) bool) error {
	if t.port == 0 {
		return nil
	}
	found, err := sb.Select(ctx, "Load_Balancer", []string{"name", "protocol", "vips"})
	if err != nil {
		return err
	}
	for _, r := range found {
		if cmp.Or(rows.Text(r["protocol"]), "tcp") != t.protocol {
			continue
		}
		vips, local, err := sb.meant(ctx, rows.Map(r["vips"]))
		if err != nil {
			return err
		}
		service, _, _ := strings.Cut(rows.Text(r["name"]), "/"+t.protocol)
		for vip, backends := range vips {
			if at, err := netip.ParseAddrPort(vip); err == nil && fits(service, at) {
				out.balance(at, service, backends)
				out.here(local)
			}
		}
	}
	return nil
}

// balance makes it a Service's.
func (to *target) balance(vip netip.AddrPort, service, backends string) {
	to.ip, to.service = vip.Addr(), service
	to.all = strings.FieldsFunc(backends, func(r rune) bool { return r == ',' })
	if len(to.all) > 0 {
		to.backend = to.all[0]
	}
}

// here has a packet to a local Service followed via its endpoint. What stands for none
// is an address of nobody.
func (to *target) here(local bool) {
	at, err := netip.ParseAddrPort(to.backend)
	switch to.local = local; {
	case !local || err != nil:
	case at.Addr().IsLoopback():
		to.backend, to.all = "", nil
	default:
		to.via = at
	}
}

// meant has the names in a load balancer replaced by what they stand for on the
// sender's node, and tells whether there were any.
func (s *south) meant(ctx context.Context, vips map[string]string) (out map[string]string, local bool, err error) {
	for vip := range vips {
		local = strings.Contains(vip, "^") // ^name:port, [^name]:port
	}
	if !local {
		return vips, false, nil
	}
	found, err := s.Select(ctx, "Chassis_Template_Var", []string{"variables"}, rows.Is("chassis", s.chassis[s.from.chassis]))
	if err != nil || len(found) == 0 {
		return nil, true, err
	}
	variables, out := rows.Map(found[0]["variables"]), map[string]string{}
	for vip, backends := range vips {
		name, port, err := net.SplitHostPort(vip)
		if err != nil {
			continue
		}
		out[net.JoinHostPort(variables[strings.TrimPrefix(name, "^")], port)] = variables[strings.TrimPrefix(backends, "^")]
	}
	return out, true, nil
}

// packet is the first one of a connection from a pod.
func (t *tracing) packet(sb *south, from binding, to netip.Addr, port int) (trace.Packet, error) {
	p := trace.Packet{InPort: from.name, SrcMAC: from.mac, Dst: to.String(), Protocol: t.protocol, Port: port, SourcePort: 40000, Datapath: from.datapath}
	at := slices.IndexFunc(from.ips, func(ip netip.Addr) bool { return ip.Is4() == to.Is4() })
	if at < 0 {
		return p, fmt.Errorf("pod %s has no address of the family of %s", t.pod, to)
	}
	p.Src = from.ips[at].String()
	gw, routed := sb.gateway(from.datapath, from.ips[at])
	near, ok := sb.first(func(b binding) bool { return b.datapath == from.datapath && slices.Contains(b.ips, to) })
	switch {
	case ok && near.mac != "":
		p.DstMAC = near.mac
	case routed:
		p.DstMAC = gw.mac
	default:
		return p, errors.New("its Subnet has no router, and no port of it has " + to.String())
	}
	return p, nil
}

// named are rules by the first digits of their logical flow.
type named map[string]string

// rules finds which objects made the rules that a packet met.
func (t *tracing) rules(ctx context.Context, sb *south, met []*trace.Flow) named {
	out := named{}
	if len(met) == 0 {
		return out
	}
	place, err := northOf(ctx, t.Asked)
	var nb *rows.DB
	if err == nil {
		nb, err = rows.Open(ctx, rows.Northbound, place, false)
	}
	var acls []ovsdb.Row
	if err == nil {
		defer nb.Close()
		acls, err = nb.Select(ctx, "ACL", []string{"_uuid", "external_ids"})
	}
	if err != nil {
		t.out.unasked("OVN's northbound database, so that rules are told by what they match", err)
		return out
	}
	for _, f := range met {
		hinted, err := sb.hint(ctx, f)
		if err != nil {
			t.out.unasked("the rule "+f.Match, err)
		}
		for _, r := range acls {
			if hinted != "" && strings.HasPrefix(rows.Text(r["_uuid"]), hinted) {
				out[f.UUID] = made(rows.Map(r["external_ids"]))
			}
		}
	}
	return out
}

// hint is the beginning of the UUID of the row that a logical flow comes from.
func (s *south) hint(ctx context.Context, f *trace.Flow) (string, error) {
	pipeline := "ingress"
	if f.Egress {
		pipeline = "egress"
	}
	found, err := s.Select(ctx, "Logical_Flow", []string{"_uuid", "external_ids"}, rows.Is("pipeline", pipeline), rows.Is("table_id", f.Table), rows.Is("priority", f.Priority))
	for _, r := range found {
		if strings.HasPrefix(rows.Text(r["_uuid"]), f.UUID) {
			return rows.Map(r["external_ids"])["stage-hint"], err
		}
	}
	return "", err
}

// made names the object that a rule is of.
func made(ids map[string]string) string {
	kind, name, _ := strings.Cut(ids["fairlead-owner"], "/")
	switch kind {
	case "networkpolicy":
		return "NetworkPolicy " + name
	case "securitygroup":
		if name == "" {
			return "the rule for pods whose SecurityGroup is not there"
		}
		return "SecurityGroup " + name
	case "subnet":
		return "Subnet " + name
	}
	for key, what := range map[string]string{"np": "NetworkPolicy ", "sg": "SecurityGroup ", "subnet": "Subnet "} { // of the reference's controller
		if ids[key] != "" {
			return what + ids[key]
		}
	}
	return ""
}
