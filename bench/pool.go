package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Row 17's other parts: as many pods as a pool has addresses, which all get one; and what
// pods of which nothing is declared pay for it, that something is of others.

const (
	poolPods  = 1000
	poolQuick = 100
	poolPar   = 50
	// poolNAD is a network whose addresses are declared.
	poolNAD      = `{"cniVersion":"1.0.0","type":"macvlan","master":"under0","mode":"bridge","mtu":1400}`
	networksPath = "/apis/net.fairlead.io/v1alpha1/namespaces/" + benchNS + "/podnetworks"
)

// lastOf is the last of so many addresses from 10.30.0.1 on.
func lastOf(count int) string { return fmt.Sprintf("10.30.%d.%d", count>>8, count&0xff) }

// poolThing declares a pool of so many addresses for the pods of StatefulSet "pool".
func poolThing(count int) thing {
	return thing{networksPath, map[string]any{
		"apiVersion": "net.fairlead.io/v1alpha1", "kind": "PodNetwork", "metadata": called("pool", nil),
		"spec": map[string]any{"statefulSet": "pool", "interfaces": []map[string]any{
			{"name": "net1", "network": benchNS + "/net1", "ipRange": "10.30.0.1-" + lastOf(count) + "/16"},
		}},
	}}
}

// pooled is a node whose pods are a StatefulSet's, by name, and ask for nothing.
func (b *bench) pooled(pods int) (*clustered, error) {
	c, err := b.cluster(pods, poolNAD)
	if err != nil {
		return nil, err
	}
	if err := c.api.make([]thing{poolThing(pods)}); err != nil {
		return nil, errors.Join(err, c.node.close())
	}
	c.asks, c.called = map[string]string{}, func(p *pod) string { return fmt.Sprintf("pool-%d", p.index) }
	return b.oursAt(c, true)
}

// poolRow is the second part of row 17.
func poolRow(b *bench) (lines []line, err error) {
	pods := poolPods
	if b.quick {
		pods = poolQuick
	}
	c, err := b.pooled(pods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.node.close()) }()
	idle, err := memoryOf(c.agent.pid())
	if err != nil {
		return nil, err
	}
	all := c.node.pods
	if err := renew(c, all); err != nil {
		return nil, err
	}
	got, err := counted(c, "ADD", all, poolPar, c.Settle)
	if err != nil {
		return nil, err
	}
	served, err := c.served()
	if err != nil {
		return nil, err
	}
	full, peak, err := c.rested(b.quick)
	if err != nil {
		return nil, err
	}
	if _, err := batch(c, "DEL", all, poolPar); err != nil {
		return nil, err
	}
	kept, err := c.returned()
	load := fmt.Sprintf("%d pods, %d at once", pods, poolPar)
	b.note("row 17: each pod of the pool has a bridge's port too, and three probes for its address on the wire (0.6 s); every ADD waits for these")
	return []line{
		{row: "17", what: "a pool of as many addresses as pods: pods with one of their own", load: load, ours: fmt.Sprintf("%.1f addresses/s, ADD p50 %.0f ms", got.rate(), got.p50()),
			peer: fmt.Sprintf("%d pods", pods), got: float64(served) / float64(pods), unit: " x", bound: atLeast(1, 1)},
		{row: "17", what: "the same, CPU of an ADD", load: load, ours: got.bill(), peer: "-", got: got.cpuEach(), unit: " ms"},
		{row: "17", what: "the same, RSS of the agent with all leases", load: load, ours: fmt.Sprintf("%.1f MB (anonymous %.1f), peak %.1f", full.rss, full.own, peak),
			peer: fmt.Sprintf("%.1f MB without pods", idle.rss), got: full.rss, unit: " MB", bound: atMost(60, 60)},
		{row: "17", what: "the same, addresses that are held after all DELs", load: load, ours: fmt.Sprint(kept), peer: "-", got: float64(kept), bound: atMost(0, 0)},
	}, err
}

// leases reads all AddressLeases.
func (c *clustered) leases() (out []leased, err error) {
	raw, err := c.api.do(http.MethodGet, leasesPath, nil)
	var list struct{ Items []leased }
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	return list.Items, err
}

// served counts the pods that have an address of the pool which no other pod has: by the
// leases, and by the status that each pod has been given.
func (c *clustered) served() (int, error) {
	all, err := c.leases()
	if err != nil {
		return 0, err
	}
	by := map[string]string{} // pod, by address
	for _, l := range all {
		if l.Status.Phase == "Bound" && l.Spec.Address != "" {
			by[l.Spec.Address] = l.Spec.Owner.Pod
		}
	}
	raw, err := c.api.do(http.MethodGet, podPath, nil)
	if err != nil {
		return 0, err
	}
	var pods struct {
		Items []struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
	}
	if err := json.Unmarshal(raw, &pods); err != nil {
		return 0, err
	}
	has := map[string]bool{}
	for _, p := range pods.Items {
		var nets []struct{ IPs []string }
		if err := json.Unmarshal([]byte(p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]), &nets); err != nil {
			return 0, fmt.Errorf("network status of pod %s: %w", p.Metadata.Name, err)
		}
		for _, n := range nets {
			for _, ip := range n.IPs {
				if by[ip] == p.Metadata.Name {
					has[ip] = true
				}
			}
		}
	}
	return len(has), nil
}

// rested is the agent's memory some time after its last work, and at its most.
func (c *clustered) rested(quick bool) (m memory, peak float64, err error) {
	rest := 10 * time.Second
	if quick {
		rest = 2 * time.Second
	}
	time.Sleep(rest)
	if m, err = memoryOf(c.agent.pid()); err != nil {
		return m, 0, err
	}
	peak, err = peakOf(c.agent.pid())
	return m, peak, err
}

// returned waits until nobody has a lease, and counts those that are held nevertheless.
func (c *clustered) returned() (held int, err error) {
	failed := until(func() error {
		all, err := c.leases()
		if err != nil {
			return err
		}
		if held = 0; len(all) == 0 {
			return errors.New("there are no leases")
		}
		for _, l := range all {
			if l.Spec.Holder.Sandbox != "" {
				held++
			}
		}
		if held > 0 {
			return fmt.Errorf("%d leases are held", held)
		}
		return nil
	})
	if held > 0 {
		return held, nil // told by the row
	}
	return held, failed
}

// unsetRow is the third part of row 17: pods of which nothing is declared.
func unsetRow(b *bench) (lines []line, err error) {
	var sides []side
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.Node().close())
		}
	}()
	others := poolPods
	if b.quick {
		others = poolQuick
	}
	for _, prepare := range []func(*api) error{
		func(a *api) error { return a.make(declarations(others)) },
		func(a *api) error { return a.drop(settingsKinds) },
	} {
		c, err := b.cluster(mostPods, macvlanConf)
		if err != nil {
			return nil, err
		}
		sides = append(sides, c)
		if err := prepare(c.api); err != nil {
			return nil, err
		}
		if _, err := b.oursAt(c, true); err != nil {
			sides = sides[:len(sides)-1] // it is closed
			return nil, err
		}
	}
	what := fmt.Sprintf("two networks, nothing declared but of %d others / without these kinds, ADD", others)
	gate := atMost(1.1, 1.1)
	metrics := against(1, []metric{addTime("17", what, gate), addCPU("17", what, gate)})
	for i := range metrics {
		metrics[i].above = true
	}
	return b.climb(contest{sides: sides, metrics: metrics}, shortLadder[:2], 0)
}

// settingsKinds are the CRDs of what declares, of leases and of policies for devices.
var settingsKinds = []string{
	crdPath + "podnetworks.net.fairlead.io", crdPath + "addressleases.net.fairlead.io", crdPath + "nodevfpolicies.net.fairlead.io",
}

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// declarations are of pods that are not there.
func declarations(count int) (out []thing) {
	for i := range count {
		out = append(out, thing{networksPath, map[string]any{
			"apiVersion": "net.fairlead.io/v1alpha1", "kind": "PodNetwork", "metadata": called(fmt.Sprintf("other-%d", i), nil),
			"spec": map[string]any{"interfaces": []map[string]any{
				{"name": "net1", "network": benchNS + "/net1", "ips": []string{fmt.Sprintf("10.31.%d.%d/16", i>>8, i&0xff)}},
			}},
		}})
	}
	return out
}
