package doctor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/source/local"
)

// Adopt takes what the running agent has where the operator says nothing; given
// tells which of the agent's flags are.
func (c *Config) Adopt(has agent.Settings, given func(flag string) bool) {
	for _, f := range []struct {
		flag   string
		target *string
		value  string
	}{
		{"state-dir", &c.StateDir, has.StateDir},
		{"objects", &c.Objects, has.Objects},
		{"ovsdb", &c.OVSDB, has.OVSDB},
		{"bridge", &c.Bridge, has.Bridge},
		{"nb", &c.NB, has.NB},
		{"conf-dir", &c.ConfDir, has.ConfDir},
		{"iface", &c.Iface, has.Iface},
	} {
		if !given(f.flag) {
			*f.target = cmp.Or(f.value, *f.target)
		}
	}
	if !given("cni-bin-dir") && len(has.CNIBinDirs) > 0 {
		c.BinDirs = has.CNIBinDirs
	}
	if !given("ovn") {
		c.OVN = has.OVN
	}
	if !given("mtu") {
		c.MTU = has.MTU
	}
	if !given("iface") {
		c.Underlay = has.Underlay
	}
}

// LoadObjects reads a folder of objects as the agent would, with OVN or without:
// what is wrong with them, and the types of plugins that they name.
func LoadObjects(dir string, ovn bool) (problems []agent.Problem, types []string, err error) {
	src, err := sourceOf(dir, ovn)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range src.Problems() {
		problems = append(problems, agent.Problem{File: p.File, Line: p.Line, Reason: p.Reason})
	}
	for _, nad := range src.NADs() {
		chain, err := cniconf.ParseChain([]byte(nad.Config), nad.Name)
		if err != nil {
			continue // a NAD without a config, or one that is among the problems
		}
		for _, p := range chain.Plugins {
			types = append(append(types, p.Type), explain.Named(p.Raw)...)
		}
	}
	return problems, types, nil
}

func sourceOf(dir string, ovn bool) (*local.Source, error) {
	log := slog.New(slog.DiscardHandler)
	if !ovn {
		return local.Open(dir, log)
	}
	m, err := local.OpenMachine(dir, "", log)
	if err != nil {
		return nil, err
	}
	return m.Source, nil
}

// BundleFile writes a bundle to a new file, and leaves none that is half-written.
// An error wraps fs.ErrExist where the file is there.
func BundleFile(ctx context.Context, name string, cfg BundleConfig) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(Bundle(ctx, cfg, f), f.Close())
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

// secretNames are environment variables whose value must not get out.
var secretNames = regexp.MustCompile(`(?i)pass|secret|token|key|credential|auth`)

// SecretEnv are the values of an environment (NAME=VALUE) that must not get out.
func SecretEnv(environ []string) (values []string) {
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); secretNames.MatchString(k) && v != "" {
			values = append(values, v)
		}
	}
	return values
}
