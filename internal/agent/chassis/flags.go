package chassis

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// Flags are what the agent's command line says of OVN's side of the node.
type Flags struct {
	// Remote is the southbound database as ovn-controller takes it, of a cluster all
	// members with commas between; "" leaves that to whoever set it.
	Remote string
	// Kind is what tunnels are made of: geneve or vxlan; "" is geneve, and leaves
	// what Open vSwitch says of it alone unless there is a Remote.
	Kind string
	// Checksum is whether the outer packets of tunnels have checksums of UDP.
	Checksum OnOff
	// Recompute is how often ovn-controller is told to compute all flows anew; 0 is
	// never.
	Recompute time.Duration
	// RunDir is where ovn-controller's control socket is.
	RunDir string
	// Namespace is Fairlead's own, where the controller publishes its CA.
	Namespace string
	// ServiceRange are networks of cluster IPs, with commas between. DefaultNIC is the
	// reference's, and has no effect here.
	ServiceRange, DefaultNIC string
}

// OnOff is "true" or "false"; "" is nothing said, and leaves all as it is. It is a
// flag's value.
type OnOff string

// Set takes what strconv.ParseBool does.
func (o *OnOff) Set(text string) error {
	on, err := strconv.ParseBool(text)
	*o = OnOff(strconv.FormatBool(on))
	return err
}

// String is it as a flag.
func (o *OnOff) String() string { return string(*o) }

// Type is what help calls it.
func (o *OnOff) Type() string { return "true|false" }

// Said is nil for nothing said.
func (o *OnOff) Said() *bool {
	if *o == "" {
		return nil
	}
	on := *o == "true"
	return &on
}

// Called is the name of a flag here, by the name that Kube-OVN's daemon has for it.
func Called(flag string) string {
	switch flag {
	case "ovs-socket":
		return "ovsdb"
	case "bind-socket":
		return "compat-socket"
	}
	return flag
}

// Dir is where in the agent's state directory ovn-controller's key and certificates
// are.
const Dir = "ovn"

// DefaultRunDir is OVN's run directory on Debian.
const DefaultRunDir = "/run/ovn"

// leastRecompute keeps ovn-controller from doing nothing else.
const leastRecompute = 10 * time.Second

// Check refuses what makes no sense; ovn tells that there is OVN at all.
func (f Flags) Check(ovn bool) (errs []error) {
	switch f.Kind {
	case "", encap.Geneve, encap.VXLAN:
	case "vlan":
		errs = append(errs, hint.Usagef("--network-type vlan is no tunnel: a Subnet is on a VLAN by its own field `vlan`; give geneve or vxlan"))
	case "stt":
		errs = append(errs, hint.Usagef("--network-type stt is not there any more: Open vSwitch 3 dropped it; give geneve or vxlan"))
	default:
		errs = append(errs, hint.Usagef("--network-type %q is neither geneve nor vxlan", f.Kind))
	}
	if f.Recompute != 0 && f.Recompute < leastRecompute {
		errs = append(errs, hint.Usagef("--recompute-interval %s is below %s; 0 is never", f.Recompute, leastRecompute))
	}
	if !ovn && (f.Remote != "" || f.Recompute != 0) {
		errs = append(errs, hint.Usagef("--ovn-remote and --recompute-interval go with --ovn"))
	}
	return append(errs, append(f.checkRemote(), f.checkRange()...)...)
}

// checkRemote: an address that ovn-controller cannot read would only stand in its log.
func (f Flags) checkRemote() (errs []error) {
	tls, plain := false, false
	for _, one := range f.remotes() {
		kind, rest, _ := strings.Cut(one, ":")
		tls, plain = tls || kind == "ssl", plain || kind != "ssl"
		_, err := netip.ParseAddrPort(rest)
		if kind != "unix" && (kind != "ssl" && kind != "tcp" || err != nil) {
			errs = append(errs, hint.Usagef("--ovn-remote %q is not ssl:ADDRESS:PORT (an IPv6 address in brackets)", one))
		}
	}
	if tls && plain {
		errs = append(errs, hint.Usagef("--ovn-remote %s: either all members by ssl, or none", f.Remote))
	}
	return errs
}

func (f Flags) checkRange() (errs []error) {
	for _, one := range strings.Split(f.ServiceRange, ",") {
		if _, err := netip.ParsePrefix(one); err != nil && f.ServiceRange != "" {
			errs = append(errs, hint.Usagef("--service-cluster-ip-range %q is no network", one))
		}
	}
	return errs
}

// Services are the networks of ServiceRange.
func (f Flags) Services() (out []netip.Prefix) {
	for _, one := range strings.Split(f.ServiceRange, ",") {
		if p, err := netip.ParsePrefix(one); err == nil {
			out = append(out, p)
		}
	}
	return out
}

func (f Flags) remotes() []string {
	if f.Remote == "" {
		return nil
	}
	return strings.Split(f.Remote, ",")
}

// TLS tells that the southbound database wants to know who the chassis is.
func (f Flags) TLS() bool { return strings.HasPrefix(f.Remote, "ssl:") }

// Idle are the flags that are given and do nothing, each with its reason.
func (f Flags) Idle(ovn bool) map[string]string {
	out := map[string]string{}
	note := func(given bool, flag, why string) {
		if given {
			out[flag] = why
		}
	}
	note(f.DefaultNIC != "", "default-interface-name", "a ProviderNetwork names its interfaces itself")
	note(!ovn && f.Checksum != "", "encap-checksum", "there are no tunnels without --ovn")
	return out
}

// MTU is what a packet of a pod may have, in bytes, to fit into a tunnel that
// leaves by a NIC.
func (f Flags) MTU(n encap.NIC) int { return n.MTU - n.Room(f.Kind) }
