package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// zone is a cluster of one node that is to be joined to another, with a pod.
type zone struct {
	*ovnCluster
	name string
	node *ovnNode
	pod  *ovnPod
}

// newZone makes one, not joined yet.
func newZone(t *testing.T, under *testbed.Underlay, name, web string) *zone {
	t.Helper()
	z := &zone{ovnCluster: newOVNSite(t, kube.Options{}, ovn.Over, under).subnets(web, dataSubnet), name: name}
	z.startCentral()
	z.node = z.join(under, name+"-1")
	z.node.agent.WaitReady()
	z.signer.Stop()
	z.controller("a", "127.0.0.1:10666")
	z.pod = z.node.run("web/" + name)
	return z
}

// asks gives the ConfigMap its data: as for the databases at host, and some changes.
func (z *zone) asks(host string, changes map[string]string) {
	z.t.Helper()
	data := map[string]string{"enable-ic": "true", "az-name": z.name, "ic-db-host": host, "gw-nodes": z.node.name, "auto-route": "true"}
	maps.Copy(data, changes)
	z.config("ovn-ic-config", data)
}

// says waits for an event of the ConfigMap.
func (z *zone) says(words string) {
	z.t.Helper()
	eventually(z.t, func() string { return z.hears("ConfigMap", "ovn-ic-config", words) })
}

// reaches waits until the zone's pod gets answers of another's, in both families.
func (z *zone) reaches(to *zone) {
	z.t.Helper()
	for _, ip := range to.pod.ips {
		eventually(z.t, func() string {
			if err := z.pod.Ping(ip); err != nil {
				return fmt.Sprintf("%s to %s: %v", z.name, to.name, err)
			}
			return ""
		})
	}
}

// examined waits until the operator is told so, on the machine of central.
func (z *zone) examined(line string) {
	z.t.Helper()
	eventually(z.t, func() string {
		out, _ := z.site.TryFairlead("doctor", "--cluster", "--central-run-dir", z.central.RunDir(), "--state-dir", z.site.Dir+"/none", "--ovsdb", "unix:/nonexistent")
		if !regexp.MustCompile(line).MatchString(out) {
			return out
		}
		return ""
	})
}

// apart waits until nothing of an interconnection is left in the cluster.
func (z *zone) apart() {
	z.t.Helper()
	eventually(z.t, func() string {
		global := z.central.Nbctl("--columns=name,options,external_ids", "list", "NB_Global")
		all := z.central.Nbctl("ls-list") + z.central.Nbctl("lr-policy-list", "ovn-cluster")
		for _, word := range []string{"(ts)", z.name + "-ts"} {
			if strings.Contains(all, word) {
				return z.name + " still has " + word + ": " + all
			}
		}
		if strings.Contains(global, z.name) || strings.Contains(global, "ic-route") || strings.Contains(global, "fairlead-ic") {
			return global
		}
		return ""
	})
}

// TestInterconnection: pods of two clusters reach each other through a gateway node of each, in
// both families, once both ConfigMaps ask for it. Networks that overlap, a gateway that is no
// node, a name that another cluster has and databases that do not answer are told. Without a
// ConfigMap that enables it nothing of it is left.
func TestInterconnection(t *testing.T) {
	t.Parallel()
	under := testbed.NewUnderlay(t)
	east, west := newZone(t, under, "east", webSubnet), newZone(t, under, "west", "10.26.0.0/16,fd00:10:26::/112")
	site := testbed.Bare(t)
	host := under.Join(site).IP4
	shared := ovn.NewShared(t, site, host)

	east.asks(host, map[string]string{"gw-nodes": east.node.name + ",nowhere"})
	east.says("there is no Node nowhere")
	east.node.says("ovn-is-interconn", "true")
	west.asks(host, map[string]string{"az-name": "east"})
	west.says(`"east" is another cluster's name`)
	west.asks(host, nil)
	east.reaches(west)
	west.reaches(east)
	east.says(`cluster "west" has 10.17.0.0/16, which overlaps Subnet data`)
	require.NotContains(t, shared.Sbctl("--bare", "--columns=ip_prefix", "list", "Route"), "100.64.", "the nodes' networks are told to nobody")

	east.examined(`✓ interconnection\s+zone east of the databases at .*; 1 gateways of other clusters`)

	// One leaves: the other knows nothing of it any more.
	west.asks(host, map[string]string{"enable-ic": "false"})
	west.apart()
	west.node.says("ovn-is-interconn", "false")
	eventually(t, func() string {
		routes, zones := east.central.Nbctl("lr-policy-list", "ovn-cluster"), shared.Sbctl("show")
		if strings.Contains(routes, "10.26.") || strings.Contains(zones, "west") {
			return routes + zones
		}
		return ""
	})
	require.Error(t, east.pod.Ping(west.pod.ips[0]))

	// It joins again at once.
	west.asks(host, nil)
	east.reaches(west)
	west.reaches(east)

	west.asks(under.Join(testbed.Bare(t)).IP4, nil)
	west.says("does not answer")
	east.c.Kubectl("-n", "kube-system", "delete", "configmap", "ovn-ic-config")
	east.apart()
	for _, z := range []*zone{east, west} {
		z.pod.end()
	}
}
