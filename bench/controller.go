package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// Row 8: pods that are made at once, until all have their addresses, against a loop
// that does nothing but write as much into as many pods of the same API server.

const (
	burst     = 200
	bareSpace = "bare"
	writers   = 8 // as many as the controller's workers
)

// controllerRow is row 8.
func controllerRow(b *bench) (lines []line, err error) {
	c, err := b.controlled()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.node.close()) }()
	if _, err := c.start(); err != nil {
		return nil, err
	}
	things := []thing{
		{"/api/v1/namespaces", map[string]any{"metadata": called(benchNS, nil)}},
		{"/api/v1/namespaces", map[string]any{"metadata": called(bareSpace, nil)}},
		{"/api/v1/nodes", map[string]any{"metadata": called(benchNode, nil)}},
		subnetThing("bench", "10.16.0.0/16", "10.16.0.1"),
	}
	if err := c.api.make(things); err != nil {
		return nil, err
	}
	if err := c.idle(); err != nil {
		return nil, err
	}
	pods := burst
	if b.quick {
		pods /= 4
	}
	var ours, bare, ratios []float64
	for i := range 1 + b.rounds { // the first one warms up
		o, p, err := c.duel(pods)
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, logs(c.node))
		}
		if i > 0 {
			ours, bare, ratios = append(ours, o), append(bare, p), append(ratios, o/p)
		}
	}
	b.note("row 8: a controller of Kube-OVN was measured to reach %d pods/s (a record); the bare loop has %d writers and neither watches nor writes elsewhere", peerBurst, writers)
	rate := func(v []float64) string { return fmt.Sprintf("%.0f pods/s", median(v)) }
	return []line{{row: "8", what: "pods created -> annotated by the controller / by a bare patch loop", load: fmt.Sprintf("%d pods at once", pods),
		ours: rate(ours), peer: rate(bare), got: median(ratios), unit: " x", bound: atLeast(0.5, 0.5)}}, nil
}

// peerBurst is what Kube-OVN's controller was measured to do (spec/performance.md).
const peerBurst = 32

// duel is A B A B; it gives both sides' pods per second.
func (c *controlled) duel(pods int) (ours, bare float64, err error) {
	var took [2]time.Duration
	for turn := range 4 {
		do := c.oursBurst
		if turn%2 == 1 {
			do = c.bareBurst
		}
		d, err := do(pods)
		if err != nil {
			return 0, 0, err
		}
		took[turn%2] += d
	}
	rate := func(d time.Duration) float64 { return float64(2*pods) / d.Seconds() }
	return rate(took[0]), rate(took[1]), nil
}

// burst makes pods of a namespace and waits until all have their annotations. made
// hears of each.
func (c *controlled) burst(namespace string, pods int, made func(name string)) (took time.Duration, err error) {
	t, err := c.api.track(podsPath(namespace), annotated)
	if err != nil {
		return 0, err
	}
	defer t.close()
	var names, paths []string
	for i := range pods {
		names = append(names, fmt.Sprintf("p%d", i))
		paths = append(paths, podsPath(namespace)+"/"+names[i])
	}
	begun := time.Now()
	err = each(makers, names, func(name string) error {
		o := simulated(namespace, name, benchNode, nil)
		_, err := c.api.do(http.MethodPost, o.path, o.body)
		if err == nil && made != nil {
			made(name)
		}
		return err
	})
	for _, name := range names {
		if err == nil {
			_, err = t.await(name)
		}
	}
	took = time.Since(begun)
	return took, errors.Join(err, c.api.drop(paths))
}

// oursBurst is the controller's turn.
func (c *controlled) oursBurst(pods int) (time.Duration, error) {
	took, err := c.burst(benchNS, pods, nil)
	if err != nil {
		return 0, err
	}
	return took, c.idle()
}

// bareBurst is the loop's turn; the controller is stopped meanwhile.
func (c *controlled) bareBurst(pods int) (took time.Duration, err error) {
	process := c.ctl.cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	work, ended := make(chan string, pods), make(chan error, 1)
	go func() { ended <- c.patchAll(work) }()
	took, err = c.burst(bareSpace, pods, func(name string) { work <- name })
	close(work)
	err = errors.Join(err, <-ended, process.Signal(syscall.SIGCONT))
	if err != nil {
		return 0, err
	}
	return took, c.idle()
}

// patchAll writes into pods, as they come, what the controller writes.
func (c *controlled) patchAll(work <-chan string) error {
	ended := make(chan error, writers)
	for range writers {
		go func() {
			for name := range work {
				if err := c.patchOne(name); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	var errs []error
	for range writers {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

func (c *controlled) patchOne(name string) error {
	notes := map[string]string{}
	for field, value := range map[string]string{
		"ip_address": "10.16.0.9", "mac_address": "02:00:00:00:00:09", "cidr": "10.16.0.0/16", "gateway": "10.16.0.1", "logical_switch": "bench",
		"logical_router": "ovn-cluster", "pod_nic_type": "veth-pair", "allocated": "true", "routed": "true",
	} {
		notes["ovn.kubernetes.io/"+field] = value
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
	if err != nil {
		return err
	}
	_, err = c.api.send(http.MethodPatch, podsPath(bareSpace)+"/"+name, "application/merge-patch+json", body)
	return err
}
