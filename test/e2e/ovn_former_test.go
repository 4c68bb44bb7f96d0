package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestFormerVersion: a cluster of a former version (make former) is upgraded, in either
// order: agents of the one run beside a controller of the other, in both ways. No ping is
// lost when a part is replaced, pods come and go in each state, a policy is carried out, and
// those that were there keep their addresses.
func TestFormerVersion(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("FAIRLEAD_FORMER")
	require.NotEmpty(t, dir, "FAIRLEAD_FORMER names no folder with a former version's programs: make former builds them")
	for _, order := range []string{"agents first", "controller first"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, dir)
			u.serves("former")
			if order == "agents first" {
				u.agents()
				u.serves("between")
				u.leads()
			} else {
				u.leads()
				u.serves("between")
				u.agents()
			}
			u.serves("present")
		})
	}
}

// upgrade is a cluster whose parts are replaced by those of this version, one by one.
type upgrade struct {
	*ovnCluster
	controller *testbed.Process
	a, b       *ovnPod // which are there all the time
	goes       *ovnPod // which came in the state before
}

func newUpgrade(t *testing.T, former string) *upgrade {
	t.Helper()
	o := newOVNCentral(t, kube.Options{}, ovn.Over)
	o.startCentral() // of this version, as its certificates are
	o.former = former
	o.enroll()
	u := &upgrade{ovnCluster: o, controller: o.controller("a", "127.0.0.1:10666")}
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	u.a, u.b = o.nodes[0].run("web/a"), o.nodes[1].run("web/b")
	u.a.reaches(u.b)
	o.former = ""
	return u
}

// agents replaces both agents.
func (u *upgrade) agents() {
	u.t.Helper()
	u.unharmed("agents were replaced", func() {
		for _, n := range u.nodes {
			n.agent.Stop()
			n.starts()
			n.settle()
		}
	})
}

// leads replaces the controller.
func (u *upgrade) leads() {
	u.t.Helper()
	u.unharmed("the controller was replaced", func() {
		u.controller.Stop()
		u.probes = nil
		u.controller = u.ovnCluster.controller("b", "127.0.0.1:10667")
		u.leader("a")
		u.agrees()
	})
}

// unharmed does something, during which no ping may be lost.
func (u *upgrade) unharmed(what string, do func()) {
	u.t.Helper()
	pings := []*testbed.Pinger{u.a.StartPing(u.b.ips[0], 20*time.Millisecond), u.b.StartPing(u.a.ips[1], 20*time.Millisecond)}
	do()
	u.central.Sync()
	for _, g := range pings {
		g.Answers(10)
		answered, lost := g.Stop()
		require.Zero(u.t, lost, "pings lost while %s, %d answered", what, answered)
	}
}

// serves proves that pods come to both nodes and go, that a policy is carried out, and
// that all records agree. What came last goes in the next state.
func (u *upgrade) serves(state string) {
	u.t.Helper()
	last := u.nodes[0].run("web/" + state)
	last.reaches(u.b)
	other := u.nodes[1].run("data/" + state)
	other.reaches(u.a)
	if u.goes != nil {
		u.goes.end()
	}
	policy := object("networking.k8s.io/v1", "NetworkPolicy", "web/closed", nil, map[string]any{"podSelector": map[string]any{}, "policyTypes": []string{"Ingress"}})
	u.c.Apply(policy)
	u.pings(other, u.a, false)
	u.c.Delete(policy)
	u.pings(other, u.a, true)
	other.end()
	u.goes = last
	u.agrees()
}

// pings waits until a pod's pings to another one are answered, or are not.
func (u *upgrade) pings(from, to *ovnPod, answered bool) {
	u.t.Helper()
	for _, ip := range to.ips {
		eventually(u.t, func() string {
			if _, err := from.Try("ping", "-n", "-c", "1", "-W", "1", ip); (err == nil) != answered {
				return fmt.Sprintf("ping from %s to %s: %v, wanted an answer: %t", from.port(), ip, err, answered)
			}
			return ""
		})
	}
}
