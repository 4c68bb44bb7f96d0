package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// `make bench-scale`: one controller for a large cluster. The objects are those of
// a real API server and the rows those of a real northbound database, which
// ovn-northd follows; the nodes are objects alone.

// sizes of a cluster.
type sizes struct {
	pods, nodes, subnets, services, policies int

	few   int // pods there are when the first ones are measured
	most  int // Subnets beside which one more is measured
	one   int // pods that are made one at a time
	extra int // Subnets that are
}

var (
	largeCluster = sizes{pods: 10_000, nodes: 200, subnets: 50, services: 500, policies: 200, few: 1000, most: 250, one: 200, extra: 40}
	smallCluster = sizes{pods: 1000, nodes: 20, subnets: 5, services: 50, policies: 20, few: 100, most: 25, one: 50, extra: 5}
)

// Names of what there is; a pod's labels are as many as there are policies of a
// namespace, twice.
const (
	policiesEach   = 4
	apps           = 2 * policiesEach
	teams          = 5
	endpointsEach  = 5
	scaleNamespace = "s"
)

func spaceName(i int) string { return fmt.Sprintf("%s%d", scaleNamespace, i) }

// scaleNet is Subnet number i: a /16 of the world's addresses, which nobody
// reaches from here.
func scaleNet(i int, namespaces ...string) thing {
	a, b := 11+i/200, i%200
	return subnetThing(fmt.Sprintf("net%d", i), fmt.Sprintf("%d.%d.0.0/16", a, b), fmt.Sprintf("%d.%d.0.1", a, b), namespaces...)
}

// scaleRow fills a cluster and measures what one more of something costs.
func scaleRow(b *bench) (lines []line, err error) {
	c, err := b.controlled()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.node.close()) }()
	s := &scale{controlled: c, sizes: largeCluster}
	if b.quick {
		s.sizes = smallCluster
	}
	if _, err := c.start(); err != nil {
		return nil, err
	}
	if err := s.declare(); err != nil {
		return nil, err
	}
	for _, step := range []func() ([]line, error){s.moreSubnets, s.grow, s.restart} {
		got, err := step()
		lines = append(lines, got...)
		if err != nil {
			return lines, fmt.Errorf("%w%s", err, logs(c.node))
		}
	}
	return lines, s.keepLog()
}

// scale is a cluster on its way.
type scale struct {
	*controlled
	sizes
	made int // pods
	ones int // pods that were made one at a time
}

// load tells how large a cluster is.
func (s *scale) load(pods, subnets int) string {
	return fmt.Sprintf("%d pods, %d nodes, %d Subnets, %d policies", pods, s.nodes, subnets, s.policies)
}

// declare makes what pods do not belong to: namespaces and nodes.
func (s *scale) declare() error {
	var all []thing
	for i := range s.subnets {
		all = append(all, thing{"/api/v1/namespaces", map[string]any{"metadata": called(spaceName(i), map[string]string{"team": fmt.Sprint(i % teams)})}})
	}
	for i := range s.nodes {
		all = append(all, thing{"/api/v1/nodes", map[string]any{
			"metadata": called(fmt.Sprintf("n%d", i), nil),
			"status":   map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": fmt.Sprintf("192.0.%d.%d", 2+i/250, 1+i%250)}}},
		}})
	}
	if err := s.api.make(all); err != nil {
		return err
	}
	return s.idle()
}

// series is what making some objects one at a time cost.
type series struct {
	took []time.Duration
	cost used
}

func (o series) p50() float64 { return quantile(o.took, 0.5) }
func (o series) p99() float64 { return quantile(o.took, 0.99) }

// cpu is one object's share of a part's time, in milliseconds.
func (o series) cpu(of time.Duration) float64 { return millis(of) / float64(len(o.took)) }

func (o series) show() string { return fmt.Sprintf("%.0f (%.0f) ms", o.p50(), o.p99()) }

func (o series) bill() string {
	return fmt.Sprintf("CPU: controller %.1f, NB %.1f, northd %.0f, API %.0f ms", o.cpu(o.cost.ctl), o.cpu(o.cost.nb), o.cpu(o.cost.northd), o.cpu(o.cost.api))
}

// oneByOne makes objects of a path, each when the one before is as it should be.
func (s *scale) oneByOne(path string, all []thing, done func(watched) bool) (out series, err error) {
	t, err := s.api.track(path, done)
	if err != nil {
		return out, err
	}
	defer t.close()
	if err := s.idle(); err != nil {
		return out, err
	}
	before, err := s.used()
	if err != nil {
		return out, err
	}
	for _, o := range all {
		begun := time.Now()
		if _, err := s.api.do(http.MethodPost, o.path, o.body); err != nil {
			return out, err
		}
		about, _ := o.body["metadata"].(map[string]any)
		name, _ := about["name"].(string)
		at, err := t.await(name)
		if err != nil {
			return out, err
		}
		out.took = append(out.took, at.Sub(begun))
	}
	if err := s.idle(); err != nil {
		return out, err
	}
	after, err := s.used()
	out.cost = after.minus(before)
	return out, err
}

// moreSubnets compares the first Subnets with those that come to many others, and
// leaves as many as the cluster has.
func (s *scale) moreSubnets() ([]line, error) {
	numbers := func(from, to int) (all []thing) {
		for i := from; i < to; i++ {
			all = append(all, scaleNet(i, spaceName(i)))
		}
		return all
	}
	if _, err := s.oneByOne(subnetsPath, numbers(0, 1), ready); err != nil { // the first of all warms up
		return nil, err
	}
	first, err := s.oneByOne(subnetsPath, numbers(1, 1+s.extra), ready)
	if err != nil {
		return nil, err
	}
	if err := s.api.make(numbers(1+s.extra, s.most)); err != nil {
		return nil, err
	}
	last, err := s.oneByOne(subnetsPath, numbers(s.most, s.most+s.extra), ready)
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, t := range numbers(s.subnets, s.most+s.extra) {
		about, _ := t.body["metadata"].(map[string]any)
		gone = append(gone, fmt.Sprint(t.path, "/", about["name"]))
	}
	if err := s.api.drop(gone); err != nil {
		return nil, err
	}
	load := fmt.Sprintf("%d nodes, %d Subnets", s.nodes, s.most)
	what := "one more Subnet until its condition is Ready, p50 (p99) / the first ones"
	return []line{
		{row: "scale", what: what, load: load, ours: last.show(), peer: first.show(), got: last.p50() / first.p50(), unit: " x", bound: atMost(1.3, 1.3)},
		{row: "scale", what: "the same, CPU of the controller", load: load, ours: last.bill(), peer: first.bill(),
			got: last.cpu(last.cost.ctl) / first.cpu(first.cost.ctl), unit: " x", bound: atMost(1.3, 1.3)},
	}, s.idle()
}

// grow fills the cluster, and compares one more pod when it has few with one when
// it is full.
func (s *scale) grow() ([]line, error) {
	if err := s.api.make(append(s.allServices(), s.allPolicies()...)); err != nil {
		return nil, err
	}
	if _, err := s.fill(s.few); err != nil {
		return nil, err
	}
	few, err := s.onePod()
	if err != nil {
		return nil, err
	}
	left := s.pods - s.made
	took, err := s.fill(s.pods)
	if err != nil {
		return nil, err
	}
	full, err := s.onePod()
	if err != nil {
		return nil, err
	}
	load := s.load(s.pods, s.subnets)
	return []line{
		{row: "scale", what: "many pods at once, created -> annotated", load: load, ours: fmt.Sprintf("%.0f pods/s", float64(left)/took.Seconds()), peer: "-",
			got: float64(left) / took.Seconds(), unit: " pods/s"},
		{row: "scale", what: "one more pod at a time, created -> annotated, p99", load: load, ours: full.show(), peer: full.bill(),
			got: full.p99(), unit: " ms", bound: atMost(250, 250)},
		{row: "scale", what: fmt.Sprintf("the same, p50 (p99) / with %d pods", s.few), load: load, ours: full.show(), peer: few.show(),
			got: full.p50() / few.p50(), unit: " x", bound: atMost(1.3, 1.3)},
		{row: "scale", what: fmt.Sprintf("the same, CPU of the controller / with %d pods", s.few), load: load, ours: full.bill(), peer: few.bill(),
			got: full.cpu(full.cost.ctl) / few.cpu(few.cost.ctl), unit: " x", bound: atMost(1.3, 1.3)},
	}, nil
}

// fill makes pods until there are so many, and gives how long it took until the
// controller had nothing to do.
func (s *scale) fill(count int) (time.Duration, error) {
	var all []thing
	for ; s.made < count; s.made++ {
		all = append(all, s.pod(s.made%s.subnets, fmt.Sprintf("p%d", s.made), s.made))
	}
	begun := time.Now()
	if err := s.api.make(all); err != nil {
		return 0, err
	}
	err := s.idle()
	return time.Since(begun), err
}

// pod is one of a namespace; its number says where it runs and what it is.
func (s *scale) pod(space int, name string, number int) thing {
	label := number / s.subnets % apps // each namespace has pods of each kind
	return simulated(spaceName(space), name, fmt.Sprintf("n%d", number%s.nodes), map[string]string{"app": fmt.Sprintf("a%d", label)})
}

// onePod makes pods of one namespace one at a time. They stay.
func (s *scale) onePod() (series, error) {
	var all []thing
	for range s.one {
		all = append(all, s.pod(0, fmt.Sprintf("one%d", s.ones), s.ones*s.subnets))
		s.ones++
	}
	return s.oneByOne(podsPath(spaceName(0)), all, annotated)
}

// allPolicies are as many for each namespace: pods of a kind are reached by those
// of the next one, and the first kind by that of other namespaces too.
func (s *scale) allPolicies() (all []thing) {
	app := func(i int) map[string]any {
		return map[string]any{"matchLabels": map[string]string{"app": fmt.Sprintf("a%d", i)}}
	}
	for i := range s.policies {
		space, kind := i%s.subnets, i/s.subnets
		from := []any{map[string]any{"podSelector": app(kind + 1)}}
		port := any(8080)
		switch kind {
		case 1:
			port = "web" // which each pod says
		case 0:
			team := map[string]any{"matchLabels": map[string]string{"team": fmt.Sprint((space + 1) % teams)}}
			from = append(from, map[string]any{"namespaceSelector": team, "podSelector": app(0)})
		}
		all = append(all, thing{"/apis/networking.k8s.io/v1/namespaces/" + spaceName(space) + "/networkpolicies", map[string]any{
			"metadata": called(fmt.Sprintf("policy%d", kind), nil),
			"spec":     map[string]any{"podSelector": app(kind), "ingress": []any{map[string]any{"from": from, "ports": []any{map[string]any{"port": port}}}}},
		}})
	}
	return all
}

// allServices are Services with their EndpointSlices.
func (s *scale) allServices() (all []thing) {
	for i := range s.services {
		space, name := spaceName(i%s.subnets), fmt.Sprintf("svc%d", i)
		var endpoints []any
		for e := range endpointsEach {
			endpoints = append(endpoints, map[string]any{"addresses": []string{fmt.Sprintf("11.%d.255.%d", i%s.subnets, 1+(i+e)%250)}})
		}
		all = append(all,
			thing{"/api/v1/namespaces/" + space + "/services", map[string]any{"metadata": called(name, nil), "spec": map[string]any{"ports": []any{map[string]any{"port": 80}}}}},
			thing{"/apis/discovery.k8s.io/v1/namespaces/" + space + "/endpointslices", map[string]any{
				"metadata": called(name, map[string]string{"kubernetes.io/service-name": name}), "addressType": "IPv4",
				"ports": []any{map[string]any{"port": 8080}}, "endpoints": endpoints,
			}})
	}
	return all
}

// restart ends the controller and starts another one.
func (s *scale) restart() ([]line, error) {
	if err := s.stop(); err != nil {
		return nil, err
	}
	begun, err := s.start()
	if err != nil {
		return nil, err
	}
	listed := time.Since(begun)
	if err := s.idle(); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	cpu, err := cpuOf(s.ctl.pid())
	peak, err2 := peakOf(s.ctl.pid())
	now, err3 := memoryOf(s.ctl.pid())
	load := s.load(s.made+s.ones, s.subnets)
	return []line{
		{row: "scale", what: "controller restarted: until it has looked at everything", load: load, ours: fmt.Sprintf("%.1f s (ready to lead after %.1f s, CPU %.1f s)", took.Seconds(), listed.Seconds(), cpu.Seconds()),
			peer: "-", got: took.Seconds(), unit: " s", bound: atMost(15, 15)},
		{row: "scale", what: "the same, the most memory (RSS)", load: load, ours: fmt.Sprintf("%.0f MB (then %.0f MB)", peak, now.rss),
			peer: "-", got: peak, unit: " MB", bound: atMost(500, 500)},
	}, errors.Join(err, err2, err3)
}

// keepLog notes what the controllers complained of.
func (s *scale) keepLog() error {
	for _, d := range s.node.daemons {
		if d.name != "fairlead-controller" {
			continue
		}
		text, err := os.ReadFile(d.log)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), `"level":"WARN"`) + strings.Count(string(text), `"level":"ERROR"`); n > 0 {
			s.b.note("scale: a controller's log has %d warnings, the last: %s", n, tail(d.log))
		}
	}
	return nil
}
