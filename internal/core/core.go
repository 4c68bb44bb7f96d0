// Package core holds the values that travel through Fairlead: what a runtime
// asks, what a pod should get, what a driver must make, what was made and what
// is recorded. It knows nothing of kernels, databases, files or Kubernetes and
// imports only the standard library.
package core

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"
)

// Op is a CNI verb (CNI spec 1.1, section 2).
type Op string

// The verbs the agent serves. VERSION is answered by the plugin itself.
const (
	Add    Op = "ADD"
	Del    Op = "DEL"
	Check  Op = "CHECK"
	GC     Op = "GC"
	Status Op = "STATUS"
	// HotPlug is our own: a running pod's networks follow its annotation.
	HotPlug Op = "HOTPLUG"
)

// Key names one interface of one sandbox: the container id and the name of the
// interface inside the pod. The runtime's own (container, CNI_IFNAME) is the
// key of a Record; each Spec in it has the same container and its own IfName.
type Key struct {
	Container string `json:"container"`
	IfName    string `json:"ifname"`
}

// String is "<container>/<ifname>", the form used in journals, logs and errors.
func (k Key) String() string { return k.Container + "/" + k.IfName }

// ParseKey is the inverse of Key.String.
func ParseKey(s string) (Key, bool) {
	c, i, ok := strings.Cut(s, "/")
	return Key{Container: c, IfName: i}, ok && c != "" && i != ""
}

// Pod names a pod; UID may be empty where the runtime does not tell it.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// String is "<namespace>/<name>".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// IsZero tells that no pod is named (a bare container).
func (p Pod) IsZero() bool { return p.Namespace == "" && p.Name == "" }

// LogValue is String, and "-" for no pod.
func (p Pod) LogValue() slog.Value {
	if p.IsZero() {
		return slog.StringValue("-")
	}
	return slog.StringValue(p.String())
}

// Netns identifies a network namespace beyond its path: a path can be reused
// by a later pod, the cookie cannot within one boot (SO_NETNS_COOKIE, kernel
// >= 5.14), and BootID tells boots apart.
type Netns struct {
	Path   string `json:"path"`
	Cookie uint64 `json:"cookie,omitempty"`
	BootID string `json:"bootID,omitempty"`
}

// Request is one call of a runtime, decoded and checked.
type Request struct {
	Op    Op
	Key   Key               // container id and CNI_IFNAME; empty for GC and STATUS
	Netns string            // path; may be empty on DEL
	Args  map[string]string // CNI_ARGS, parsed
	// RawArgs is CNI_ARGS as it came; delegates get exactly these bytes.
	RawArgs string
	Path    []string // CNI_PATH, split
	Conf    Conf
	Pod     Pod // from K8S_POD_* of Args, or from Kube-OVN's request
	// Token names the operation of ours whose foreign plugin makes this call;
	// "" for a call of a runtime.
	Token string
	// Called is when the runtime called. Waited marks a DEL that was left while
	// no agent answered: it is about what was attached before it was called.
	Called Moment
	Waited bool
}

// Conf is a network configuration, parsed and validated by package cniconf.
type Conf struct {
	CNIVersion    string
	Name          string
	Type          string // fairlead, kube-ovn or multus; another with AddressesOnly
	Provider      string // Kube-OVN's key; "" means the default network's provider, "ovn"
	Capabilities  map[string]bool
	RuntimeConfig map[string]json.RawMessage // only what the runtime sent
	// Annotations are the pod's, where the runtime tells them
	// (io.kubernetes.cri.pod-annotations); nil where it does not.
	Annotations map[string]string
	PrevResult  json.RawMessage
	Routes      []Route
	DNS         DNS
	// Delegates are the networks of a `multus`-style conf: the first is the
	// pod's default network. Empty means ClusterNetwork, and without that our
	// own default network.
	Delegates []Chain
	// ClusterNetwork is the pod's default network and DefaultNetworks are what
	// every pod gets beside it: each the name of a NAD in MultusNamespace, the
	// name of a network in ConfDir, a directory or a file.
	ClusterNetwork  string
	DefaultNetworks []string
	// SystemNamespaces are those whose pods get no DefaultNetworks; nil means
	// kube-system.
	SystemNamespaces []string
	MultusNamespace  string // "" means kube-system
	// AuxChain names a directory of plugins that run behind the default network.
	AuxChain string
	// ReadinessFile must exist before an ADD goes on.
	ReadinessFile string
	// Valid is the runtime's list of live attachments (GC). HasValid tells an
	// empty list from a missing key, which is an error.
	Valid    []Key
	HasValid bool

	ConfDir            string   // where NADs without spec.config look for their network
	BinDir             string   // searched before CNI_PATH
	CNIDir             string   // where Multus kept its records
	Kubeconfig         string   // how the API server is reached
	NamespaceIsolation bool     // a pod may use NADs of its own and of global namespaces only
	GlobalNamespaces   []string // exempt from isolation
	Raw                json.RawMessage
}

// AddressesOnly tells a configuration of a foreign plugin, whose IPAM plugin we
// are: it is about addresses and no interface.
func (c Conf) AddressesOnly() bool { return c.Type != "" && !OwnType(c.Type) }

// Chain is a CNI configuration list; a single configuration is a chain of one.
type Chain struct {
	Name       string   `json:"name"`
	CNIVersion string   `json:"cniVersion"`
	Plugins    []Plugin `json:"plugins"`
	// Single tells a plain configuration from a list of one: CNI 0.1.0 and
	// 0.2.0 know no lists.
	Single       bool `json:"single,omitempty"`
	DisableCheck bool `json:"disableCheck,omitempty"`
	DisableGC    bool `json:"disableGC,omitempty"`
}

// Plugin is one entry of a Chain. Raw is the entry's JSON object as written,
// without what a runtime injects (name, cniVersion, runtimeConfig, prevResult).
type Plugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	Raw          json.RawMessage `json:"raw"`
}

// Own tells that the plugin type is served in process by the agent.
func (p Plugin) Own() bool { return OwnType(p.Type) }

// MetaType tells those whose configuration is for all networks of a pod. Under
// the last of them Multus' daemon writes its configurations.
func MetaType(t string) bool { return t == "fairlead" || t == "multus" || t == "multus-shim" }

// Route is a route inside a pod; an invalid GW means on-link.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"`
}

// DNS is the resolver part of a CNI result.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// Anywhere is the destination of a default route of a's family.
func Anywhere(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// MAC is a hardware address that reads and writes as text in JSON.
type MAC net.HardwareAddr

// String is the lower-case colon form, "" for none.
func (m MAC) String() string { return net.HardwareAddr(m).String() }

// MarshalText writes the colon form.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads any form net.ParseMAC knows; empty text is no address.
func (m *MAC) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*m = nil
		return nil
	}
	hw, err := net.ParseMAC(string(b))
	*m = MAC(hw)
	return err
}

// PortMapping is a port of the node that leads to a port of a pod (CNI
// conventions, capability portMappings).
type PortMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp, sctp
	// HostIP is the node's address that the port is on; invalid or unspecified
	// means all of them, of the address's family or of both.
	HostIP netip.Addr `json:"hostIP,omitzero"`
}

// Want is one network a pod should get: resolve makes it, plan turns it into
// Specs.
type Want struct {
	Network string // NAD "ns/name", or the name of the default network
	IfName  string // in the pod; already unique and valid
	Default bool   // the cluster default network
	// Steps run in order: our own NICs and foreign plugins, as the chain lists them.
	Steps []Step
	// CNIVersion is the delegate chain's own version, "" for our own network.
	CNIVersion string
	// Gateways are the requested default gateways (`default-route`);
	// TakesDefault asks for those that the network itself has.
	Gateways     []netip.Addr
	TakesDefault bool
	// Args is the CNI_ARGS string this network's plugins get.
	Args   string
	Claims []Claim // of its interface, as in Spec
	// Unasked: only a declaration outside of the pod names the network.
	Unasked bool
	// Request is the element of the pod's annotation that asks for the network,
	// in one form whatever the form it was written in; "" for a network of the
	// configuration. A network is the same as long as its Request is.
	Request string
	// DeclaredBy are the objects that declare settings of the interface (Blame).
	DeclaredBy []string
	// Declared as in Spec.
	Declared map[string]string
}

// Step is one element of a chain: exactly one of NIC and Exec is set.
type Step struct {
	NIC  *NIC
	Exec *Exec
	// Lent is what Exec will get when it asks us for its interface's addresses; nil
	// for a plugin that does not ask.
	Lent *NIC
}

// Kind is that of the Spec which the step becomes.
func (s Step) Kind() Kind {
	if s.NIC != nil {
		return KindNIC
	}
	return KindDelegate
}

// NIC is an interface of our own that a pod should get.
type NIC struct {
	Driver   string       // that carries it, as in Spec
	Provider string       // "ovn", or the NAD's provider
	Subnet   Subnet       // resolved
	IPs      []netip.Addr // requested fixed addresses, at most one per family
	// Pool are candidates, each as IPs: the first that is free is taken.
	Pool [][]netip.Addr
	// Family is the one of which it has an address where its Subnet has both.
	Family Family
	// Given: IPs are all its addresses, and a controller has allocated them.
	Given bool
	Settings
	// Bandwidth is what CNI's or Kubernetes' own way asks for: in force where the
	// NIC's annotations set no rate, also when they set none any more.
	Bandwidth QoS
	// DefaultRoute: this NIC carries the pod's default route.
	DefaultRoute bool
	Type         string // "veth-pair" or "internal-port"
	Hardware     Hardware
	PlainVLAN    *int   // as in NICSpec
	IfaceID      string // pod.ns[.provider][.ifname]: name of the logical port
	Ports        []PortMapping
}

// Families are the address families of which the NIC has an address.
func (n *NIC) Families() (out []Family) {
	for _, c := range n.Subnet.CIDRs {
		if n.Family.Has(c.Addr()) {
			out = append(out, FamilyOf(c.Addr()))
		}
	}
	return out
}

// Family is an address family, or any.
type Family int

// The families.
const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

// FamilyOf is that of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// Has tells that an address is of the family.
func (f Family) Has(a netip.Addr) bool { return f == AnyFamily || f == FamilyOf(a) }

// String is the form used in errors.
func (f Family) String() string { return [...]string{"IPv4 or IPv6", "IPv4", "IPv6"}[f] }

// Exec is one call of a foreign CNI plugin. Conf is the complete stdin except
// prevResult, which Prev holds once it is known; it is never rebuilt later.
type Exec struct {
	Type       string          `json:"type"`
	CNIVersion string          `json:"cniVersion"`
	Conf       json.RawMessage `json:"conf"`
	Args       string          `json:"args,omitempty"` // CNI_ARGS
	Path       []string        `json:"path"`           // directories searched for Type
	Prev       json.RawMessage `json:"prev,omitempty"` // prevResult, in CNIVersion
	Network    string          `json:"network"`        // `name` in Conf; GC is by it
	DisableGC  bool            `json:"disableGC,omitempty"`
	NoCheck    bool            `json:"noCheck,omitempty"`
	// DevInfo is the device's information file, nil without a device.
	DevInfo *DevInfo `json:"devInfo,omitempty"`
	// Failed is there when the plugin's ADD did not succeed, nil when it did.
	Failed *Failure `json:"failed,omitempty"`
	// Plain is Conf as it is where nothing is declared of the pod; nil where nothing was.
	Plain json.RawMessage `json:"plain,omitempty"`
	// Former is Conf before a change of the running pod that has not ended yet.
	Former json.RawMessage `json:"former,omitempty"`
}

// DevInfo names the device information files of one attachment (NPWG device
// information specification v1.1): what the device plugin wrote, and what the
// CNI plugin may read and rewrite.
type DevInfo struct {
	DP  string `json:"dp,omitempty"`
	CNI string `json:"cni"`
	// Shared: an earlier plugin of the chain has the same files; with it they
	// come and go.
	Shared bool `json:"shared,omitempty"`
}

// Owner says who holds an address.
type Owner struct {
	Key Key `json:"key"`
	Pod Pod `json:"pod"`
}

// Lease is one NIC's claim on addresses and a MAC of a subnet.
type Lease struct {
	Subnet string       `json:"subnet"`
	Owner  Owner        `json:"owner"`
	IPs    []netip.Addr `json:"ips"`
	MAC    MAC          `json:"mac"`
	// Quiet: no neighbour can remember one of the addresses with another MAC,
	// so that there is nothing to announce. It is known only to who acquires.
	Quiet bool `json:"-"`
}

// Link is what a driver made.
type Link struct {
	HostIf   string         `json:"hostIf,omitempty"`
	IfName   string         `json:"ifName"`
	Addrs    []netip.Prefix `json:"addrs,omitempty"`
	Gateways []netip.Addr   `json:"gateways,omitempty"`
	PodSide
	CNIResult json.RawMessage `json:"result,omitempty"` // exec: the plugin's answer, in the plugin's version
	// DeviceInfo is what the device information file said after Attach.
	DeviceInfo json.RawMessage `json:"deviceInfo,omitempty"`
	// Warnings: what was asked for and cannot be had, in words (two QoS of
	// one port, for example).
	Warnings []string `json:"warnings,omitempty"`
}

// Phase is how far a record has come.
type Phase string

// A record is Adding from Begin to Commit, Added after Commit, Deleting from
// the start of a DEL (or roll-back) until it is forgotten.
const (
	Adding   Phase = "adding"
	Added    Phase = "added"
	Deleting Phase = "deleting"
)

// Record is everything the journal knows of one attachment. DEL, CHECK and GC
// need nothing else.
type Record struct {
	Key       Key       `json:"key"`
	Network   string    `json:"network"` // `name` of the runtime's conf: GC is by it
	Pod       Pod       `json:"pod"`
	Netns     Netns     `json:"netns"`
	Phase     Phase     `json:"phase"`
	Delivered bool      `json:"delivered,omitempty"` // the runtime has the answer
	Created   time.Time `json:"created"`
	// Boottime is CLOCK_BOOTTIME when the ADD was called, in the boot of Netns;
	// 0: not known (adopted, or an older agent's).
	Boottime time.Duration `json:"boottime,omitempty"`
	Specs    []Spec        `json:"specs"`
	// Begun: Specs[:Begun] may have been started. It is recorded before they
	// are, so a roll-back undoes what was begun and nothing else.
	Begun  int     `json:"begun"`
	Links  []Link  `json:"links,omitempty"` // one per finished spec, same order
	Leases []Lease `json:"leases,omitempty"`
	Procs  []Proc  `json:"procs,omitempty"` // delegates that may be running
	// FormerFiles are files of whoever attached the container before us: they go
	// with the record.
	FormerFiles []string `json:"leftovers,omitempty"`
	Statuses    []Net    `json:"statuses,omitempty"` // network-status, once Added
	Timeline    []Timing `json:"timeline,omitempty"`
	// AddCall is there when the pod's annotation decides about its networks: they
	// follow it while the pod runs. Problem is why they do not.
	AddCall *AddCall `json:"ask,omitempty"`
	Parts   []Part   `json:"parts,omitempty"`
	Plugs   []Plug   `json:"plugs,omitempty"` // of networks that are not from the ADD
	// Displaced are the default routes that networks which came to the running pod
	// have taken from others, as the specs that would set them; the last one
	// comes back first.
	Displaced []Spec `json:"yielded,omitempty"`
	Problem   string `json:"amiss,omitempty"`
	// Orphan: DEL was answered, its namespace is gone, and some Detach still
	// fails; Error says why.
	Orphan bool   `json:"orphan,omitempty"`
	Error  string `json:"error,omitempty"`
}

// AddCall is what is needed of an ADD to resolve the pod's networks again.
type AddCall struct {
	Conf json.RawMessage `json:"conf"` // the runtime's
	Args string          `json:"args,omitempty"`
	Path []string        `json:"path,omitempty"`
}

// Part is a network that is just coming to a running pod, or going: it is not
// whole while the rest of its record is. Whoever finds one that nobody works
// on removes it.
type Part struct {
	Specs  []Spec  `json:"specs"`
	Begun  int     `json:"begun"` // as in Record
	Leases []Lease `json:"leases,omitempty"`
	// Restore are default routes to be set when the part is gone: it has, or may
	// have, taken their place.
	Restore []Spec `json:"restore,omitempty"`
}

// Plug is how a network came to a running pod.
type Plug struct {
	IfName   string    `json:"ifname"`
	When     time.Time `json:"when"`
	Timeline []Timing  `json:"timeline"`
}

// Proc is a delegate's process group: enough to kill it after an agent's death
// without ever killing a stranger that got the same pid.
type Proc struct {
	PGID      int    `json:"pgid"`
	StartTime uint64 `json:"startTime"` // clock ticks since boot, /proc/PID/stat field 22
}

// Net is one element of k8s.v1.cni.cncf.io/network-status (NPWG v1.3, 4.1).
type Net struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	MTU       int      `json:"mtu,omitempty"`
	Default   bool     `json:"default,omitempty"`
	DNS       DNS      `json:"dns,omitzero"`
	// DeviceInfo is the network's device, as NPWG's device information
	// specification v1.1 describes it.
	DeviceInfo   json.RawMessage `json:"device-info,omitempty"`
	Gateway      []string        `json:"gateway,omitempty"`
	DefaultRoute []string        `json:"default-route,omitempty"`
}

// PCI is the address of the network's device, "" where it has none on that bus.
func (n Net) PCI() string {
	var device struct {
		PCI struct {
			Address string `json:"pci-address"`
		} `json:"pci"`
	}
	if len(n.DeviceInfo) == 0 || json.Unmarshal(n.DeviceInfo, &device) != nil {
		return ""
	}
	return device.PCI.Address
}

// NetTexts are interfaces with addresses and networks for people, in order.
func NetTexts(nets []Net) string {
	parts := make([]string, 0, len(nets))
	for _, n := range nets {
		part := n.Interface
		if len(n.IPs) > 0 {
			part += " [" + strings.Join(n.IPs, " ") + "]"
		}
		parts = append(parts, part+" from "+n.Name)
	}
	return strings.Join(parts, ", ")
}

// Timing is one timed step of an operation.
type Timing struct {
	Step  string        `json:"step"`
	Start time.Duration `json:"start"` // since the operation began, ns
	Took  time.Duration `json:"took"`  // ns
	Error string        `json:"error,omitempty"`
}

// Attempt is the last operation on a pod that failed, kept for `describe pod`.
type Attempt struct {
	Op       Op        `json:"op"`
	Key      Key       `json:"key"`
	Pod      Pod       `json:"pod"`
	When     time.Time `json:"when"`
	Timeline []Timing  `json:"timeline"`
	Code     uint      `json:"code"`
	Error    string    `json:"error"`
	// NoNetwork: a network that does not exist was asked for.
	NoNetwork bool `json:"-"`
	// Reason is the error's, "" for most, and Objects are those that declare what it
	// refuses (core.Blamed).
	Reason  string   `json:"-"`
	Objects []string `json:"-"`
}

// Released remembers which addresses a pod's interface held, so that the same
// pod name gets them back while they are free, and so that the address that
// has been free longest is given next.
type Released struct {
	Subnet string       `json:"subnet"`
	Pod    Pod          `json:"pod"`
	IfName string       `json:"ifname"`
	IPs    []netip.Addr `json:"ips"`
	MAC    MAC          `json:"mac"`
	Seq    uint64       `json:"seq"` // grows with each release
}

// Notices hears what befell a pod's networks, to tell others of it (status,
// events). Calls must not block; what is told is in the journal already. Of
// networks that come to a running pod, or go, r has the Statuses of those.
type Notices interface {
	Attached(r Record) // committed, with Statuses
	Detached(r Record) // forgotten
	Failed(a Attempt)
}

// Conditions tells of a pod what lasts: status is True, False or Unknown. Calls
// must not wait for others. What was told holds over a start, until it is told otherwise.
type Conditions interface {
	Condition(pod Pod, kind, status, reason, message string)
}

// Observer hears what happens, for metrics and logs. Calls must not block.
type Observer interface {
	// StepDone reports one timed step, e.g. "journal.begin" or "ovs.ofport".
	StepDone(step string, took time.Duration)
	// OpDone reports a finished operation; driver is that of the main NIC.
	OpDone(op Op, driver string, took time.Duration, err error)
}

// Clip cuts text that is longer than limit, in bytes, at a character, and shows
// that it did.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = "..."
	limit -= len(more)
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + more
}
