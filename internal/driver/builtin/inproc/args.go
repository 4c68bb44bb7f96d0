package inproc

import (
	"net"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// ArgsMAC is the value of MAC in CNI_ARGS, "" without one. As the programs do,
// it refuses what it cannot read, and keys that it does not know unless
// IgnoreUnknown is set.
func ArgsMAC(args string) (mac string, err error) {
	if args == "" {
		return "", nil
	}
	var unknown []string
	ignore := false
	for _, pair := range strings.Split(args, ";") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(v, "=") {
			return "", core.Errorf(core.CodeEnv, "CNI_ARGS: %q is not KEY=VALUE", pair)
		}
		switch k {
		case "MAC":
			mac = v
		case "IgnoreUnknown":
			if ignore, ok = truth(v); !ok {
				return "", core.Errorf(core.CodeEnv, "CNI_ARGS: %q is neither true nor false", pair)
			}
		default:
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 && !ignore {
		return "", core.Errorf(core.CodeEnv, "CNI_ARGS: unknown: %s; IgnoreUnknown=1 would pass over them", strings.Join(unknown, ", "))
	}
	return mac, nil
}

func truth(v string) (value, ok bool) {
	switch strings.ToLower(v) {
	case "1", "true":
		return true, true
	case "0", "false":
		return false, true
	}
	return false, false
}

// ParseMAC reads a MAC for an Ethernet interface; "" is none.
func ParseMAC(s string) (core.MAC, error) {
	if s == "" {
		return nil, nil
	}
	hw, err := net.ParseMAC(s)
	if err != nil {
		return nil, core.Errorf(core.CodeConfig, "key \"mac\": %w", err)
	}
	if len(hw) != 6 {
		return nil, core.Errorf(core.CodeConfig, "key \"mac\": %s has %d bytes, an Ethernet address has 6", s, len(hw))
	}
	return core.MAC(hw), nil
}
