package runtimes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/internal/install/explain"
)

// since tells from which version on a runtime takes a version of CNI: that of
// the libcni which it is built with. "" is where we do not know it.
type since struct {
	major, minor int
	cni          string
}

// libcnis by runtime, the newest first: containerd's go.mod, and CRI-O's moves to
// ocicni 0.3 (1.24) and to libcni 1.2, of which we know that 1.29 has not made it.
var libcnis = map[explain.Dialect][]since{
	explain.Containerd: {{2, 0, "1.1.0"}, {1, 6, "1.0.0"}, {0, 0, "0.4.0"}},
	explain.CRIO:       {{1, 33, "1.1.0"}, {1, 30, ""}, {1, 24, "1.0.0"}, {0, 0, "0.4.0"}},
	explain.Fairlead:   {{0, 0, "1.1.0"}},
}

// newestCNI is the newest version of CNI that a version of a runtime takes, "" is
// not known.
func newestCNI(d explain.Dialect, version string) string {
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); err != nil && d != explain.Fairlead {
		return ""
	}
	for _, s := range libcnis[d] {
		if major > s.major || major == s.major && minor >= s.minor {
			return s.cni
		}
	}
	return ""
}

// Newest asks the running runtime of a kind for the newest version of CNI that it
// takes; "" where none runs, or it is not known.
func Newest(ctx context.Context, d explain.Dialect, sockets []string) string {
	all, _ := Running(ctx, sockets)
	for _, l := range all {
		if l.Dialect == d {
			return l.CNI
		}
	}
	return ""
}

// Running asks the runtimes behind the sockets that are there. The error says
// which of them did not answer; it comes with those that did.
func Running(ctx context.Context, sockets []string) (all []Live, err error) {
	var errs []error
	for _, s := range sockets {
		if info, err := os.Stat(s); err != nil || info.Mode().Type() != os.ModeSocket {
			continue
		}
		within, cancel := context.WithTimeout(ctx, patience)
		l, err := Query(within, s)
		cancel()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, l)
	}
	return all, errors.Join(errs...)
}
