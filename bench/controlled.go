package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// controlled is a cluster whose nodes are objects alone: an API server, OVN's
// central part, and our controller between them.
type controlled struct {
	b    *bench
	node *node
	api  *api
	ovn  central
	ctl  *daemon
}

const (
	subnetsPath = "/apis/kubeovn.io/v1/subnets"
	ctlAddr     = "127.0.0.1:10666"
	makers      = 20 // requests at once of who makes objects
)

// controlled starts such a cluster, without the controller.
func (b *bench) controlled() (*controlled, error) {
	n, err := b.newNode(0)
	if err != nil {
		return nil, err
	}
	c := &controlled{b: b, node: n}
	if c.api, err = b.startAPI(n); err == nil {
		err = c.api.installCRDs(b, "crds", "cluster")
	}
	if err == nil {
		c.ovn, err = n.startCentral()
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return c, nil
}

// start runs the controller. It gives when that was, and returns when it is ready
// to lead.
func (c *controlled) start() (begun time.Time, err error) {
	begun = time.Now()
	c.ctl, err = c.node.start(c.b.bin("fairlead-controller"), "--kubeconfig", c.api.kubeconfig(), "--nb", "unix:"+nbSocket, "--http", ctlAddr)
	if err != nil {
		return begun, err
	}
	return begun, c.ctl.await(func() error {
		_, err := c.ask("/readyz")
		return err
	})
}

// stop ends the controller as a runtime does; it gives its Lease back.
func (c *controlled) stop() error {
	if err := c.ctl.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.ctl.ended:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the controller does not end: %s", tail(c.ctl.log))
	}
}

// ask gets a page of the controller.
func (c *controlled) ask(path string) ([]byte, error) {
	resp, err := c.api.http.Get("http://" + ctlAddr + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, bytes.TrimSpace(out))
	}
	return out, err
}

// idle waits until the controller leads and has nothing to do: it is so at several
// looks in a row, since what it writes comes back to it.
func (c *controlled) idle() error {
	const looks, pause = 3, 100 * time.Millisecond // a look is not free for the controller either
	quiet := 0
	return c.ctl.awaitWithin(10*patience, func() error {
		out, err := c.ask("/metrics")
		if err != nil {
			return err
		}
		leads, pending := metricOf(out, "fairlead_controller_leading"), metricOf(out, "fairlead_controller_pending")
		if quiet++; leads != 1 || pending != 0 {
			quiet = 0
		}
		if quiet < looks {
			time.Sleep(pause)
			return fmt.Errorf("leads %v, %v objects wait; %s", leads, pending, tail(c.ctl.log))
		}
		return nil
	})
}

// metricOf is the value of a metric without labels, -1 for none.
func metricOf(page []byte, name string) float64 {
	for s := bufio.NewScanner(bytes.NewReader(page)); s.Scan(); {
		if text, is := strings.CutPrefix(s.Text(), name+" "); is {
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				return v
			}
		}
	}
	return -1
}

// used is the processor time of the parts of a controlled cluster.
type used struct{ ctl, nb, northd, api time.Duration }

func (u used) minus(o used) used {
	return used{u.ctl - o.ctl, u.nb - o.nb, u.northd - o.northd, u.api - o.api}
}

func (c *controlled) used() (u used, err error) {
	for d, to := range map[*daemon]*time.Duration{c.ctl: &u.ctl, c.ovn.nb: &u.nb, c.ovn.northd: &u.northd} {
		if *to, err = cpuOf(d.pid()); err != nil {
			return u, err
		}
	}
	b, err := daemonsCPU(c.node)
	u.api = b.api
	return u, err
}

// peakOf is the most that was resident of a process, in megabytes.
func peakOf(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(b), "\nVmHWM:")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("process %d has no VmHWM", pid)
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib * 1024 / 1e6, err
}

// thing is an object to be made at a path.
type thing struct {
	path string
	body map[string]any
}

// make makes objects, many at a time.
func (a *api) make(all []thing) error {
	return each(makers, all, func(t thing) error {
		_, err := a.do(http.MethodPost, t.path, t.body)
		return err
	})
}

// drop deletes objects by their paths, many at a time.
func (a *api) drop(paths []string) error {
	return each(makers, paths, func(p string) error {
		_, err := a.do(http.MethodDelete, p+"?gracePeriodSeconds=0", nil)
		return err
	})
}

// each does something with all elements of a list, so many at a time.
func each[T any](par int, all []T, do func(T) error) error {
	work, ended := make(chan T, len(all)), make(chan error, par)
	for _, t := range all {
		work <- t
	}
	close(work)
	for range par {
		go func() {
			for t := range work {
				if err := do(t); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	var errs []error
	for range par {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// called is the metadata of a thing, with labels where there are some.
func called(name string, labels map[string]string) map[string]any {
	m := map[string]any{"name": name}
	if len(labels) > 0 {
		m["labels"] = labels
	}
	return m
}

// podsPath is where the pods of a namespace are.
func podsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// simulated is a pod that no kubelet runs.
func simulated(namespace, name, node string, labels map[string]string) thing {
	return thing{podsPath(namespace), map[string]any{
		"metadata": called(name, labels),
		"spec": map[string]any{
			"nodeName": node, "terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{"name": "c", "image": "x", "ports": []any{map[string]any{"name": "web", "containerPort": 8080}}}},
		},
	}}
}

// subnetThing is a Subnet of some namespaces.
func subnetThing(name, cidr, gateway string, namespaces ...string) thing {
	spec := map[string]any{"protocol": "IPv4", "cidrBlock": cidr, "gateway": gateway}
	if len(namespaces) > 0 {
		spec["namespaces"] = namespaces
	} else {
		spec["default"] = true
	}
	return thing{subnetsPath, map[string]any{"apiVersion": "kubeovn.io/v1", "kind": "Subnet", "metadata": called(name, nil), "spec": spec}}
}
