package central

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/ovn/ic"
)

// joinLook is the pause between two looks whether the cluster is joined to others.
const joinLook = 2 * time.Second

// interconnect runs ovn-ic while the northbound database says that it is joined to those of
// other clusters (ovn.Interconnection), until ctx ends. Each member runs one; of these that one
// works which has the southbound database's lock. While nobody knows what the database says,
// what runs goes on.
func (m *member) interconnect(ctx context.Context) {
	ask := &ic.Asker{Endpoint: m.socket(north)}
	defer ask.Close()
	var at ic.Databases
	end := func() {}
	defer func() { end() }()
	m.every(ctx, joinLook, "interconnection with other clusters", func(ctx context.Context) error {
		now, err := ask.Asked(ctx)
		if err != nil {
			return fmt.Errorf("ask the northbound database: %w", err)
		}
		m.apart.Store(now.NB == "")
		if now == at {
			return nil
		}
		if now.NB != "" {
			if _, err := exec.LookPath("ovn-ic"); err != nil {
				return fmt.Errorf("this cluster is to be joined to others, and ovn-ic is not installed (Debian: package ovn-ic): %w", err)
			}
		}
		end()
		m.setIC(nil)
		at, end = now, func() {}
		if now.NB != "" {
			c := m.child("ic", append([]string{"ovn-ic", north.option + m.endpoints(north), south.option + m.endpoints(south),
				"--ic-nb-db=" + now.NB, "--ic-sb-db=" + now.SB, "--unixctl=" + m.ctl("ic")}, m.keys(fileCentral)...))
			m.setIC(c)
			end = c.begin(ctx)
		}
		return nil
	})
}

func (m *member) setIC(c *child) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ic = c
}

// againIC starts ovn-ic anew, if it runs.
func (m *member) againIC() {
	m.mu.Lock()
	c := m.ic
	m.mu.Unlock()
	if c != nil {
		c.again()
	}
}

// remote are the chassis of other clusters, which ovn-ic keeps.
func (m *member) remote(ctx context.Context) (map[string]bool, error) {
	all, err := m.call(ctx, m.sbctl("--bare", "--no-headings", "--columns=name", "find", "Chassis", "other_config:is-remote=true")...)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, name := range strings.Fields(all) {
		out[name] = true
	}
	return out, nil
}
