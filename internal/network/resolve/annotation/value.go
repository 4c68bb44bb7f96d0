// Package annotation reads what a pod's annotations say of one NIC, and the
// values that annotations are made of: addresses, MACs, names. It is pure and
// knows neither networks nor Subnets; each refusal names the key.
//
// Source: spec/sdn.md sections 2, 3 and 12.
package annotation

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/core"
)

// Error is the cause behind a refused annotation: which key, and which value it
// held. The error around it carries the CNI code.
type Error struct {
	Key    string // annotation key, with the element's path where there is one
	Value  string
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("annotation %s: %q %s", e.Key, Clip(e.Value), e.Reason)
}

// Refused makes the error for one bad annotation value.
func Refused(code uint, key, value, format string, args ...any) error {
	cause := &Error{Key: key, Value: value, Reason: fmt.Sprintf(format, args...)}
	return &core.Error{Code: code, Msg: cause.Error(), Err: cause}
}

// Clip keeps messages short: an annotation may be 8 KiB.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// ParseAddr reads a unicast address without zone; IPv4 written inside IPv6 is
// Refused because the two forms would not compare equal.
func ParseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	switch {
	case err != nil:
		return a, fmt.Errorf("is not an IP address")
	case a.Is4In6() || a.Zone() != "":
		return a, fmt.Errorf("must be plain IPv4 or IPv6, without zone")
	case a.IsMulticast() || a.IsUnspecified() || a.IsLoopback():
		return a, fmt.Errorf("is not a unicast address")
	}
	return a, nil
}

// OnePerFamily refuses a second address of one family.
func OnePerFamily(addrs []netip.Addr) error {
	for i, a := range addrs {
		for _, b := range addrs[:i] {
			if a.Is4() == b.Is4() {
				return fmt.Errorf("names two addresses of one family")
			}
		}
	}
	return nil
}

// ParseMAC reads a unicast Ethernet address of 6 bytes.
func ParseMAC(s string) (core.MAC, error) {
	hw, err := net.ParseMAC(strings.TrimSpace(s))
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not a MAC address")
	case len(hw) != 6:
		return nil, fmt.Errorf("has %d bytes, an Ethernet address has 6", len(hw))
	case hw[0]&1 != 0:
		return nil, fmt.Errorf("is a multicast address")
	case hw.String() == "00:00:00:00:00:00":
		return nil, fmt.Errorf("is all zero")
	}
	return core.MAC(hw), nil
}

// IfNameFault says why s cannot name an interface in a pod, "" if it can: the
// kernel's rule (dev_valid_name, 15 bytes), no '%' because the kernel expands
// it, no control or non-ASCII characters because they would have to be quoted
// wherever the name is shown.
func IfNameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > 15:
		return "is longer than 15 characters"
	case slices.Contains([]string{".", "..", "lo", "all", "default"}, s): // the last two are sysctl's
		return "is reserved"
	case strings.ContainsAny(s, "/:%"):
		return "must not contain '/', ':' or '%'"
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= unicode.MaxASCII }) {
		return "must be printable ASCII without spaces"
	}
	return ""
}

// IsName tells a DNS-1123 subdomain, the rule for NADs and Subnets.
func IsName(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// IsNamespace tells a DNS-1123 label.
func IsNamespace(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }
