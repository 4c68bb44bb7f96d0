package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Row 17's first part: what a declared address and its MAC cost before anything of the
// interface is made, against two writes of an object of that size, one after the other.

const (
	leasesPath = "/apis/net.fairlead.io/v1alpha1/addressleases"
	claims     = 50 // of a turn, one at a time
)

// claimer leases addresses as an agent does, and writes objects as one who does not ask.
type claimer struct {
	api    *api
	keeper *leases.Keeper
	serial int // claims so far; each is of another address
}

// claimer makes a node with an API server, of which this process is the agent's part that
// leases, until stop is called.
func (b *bench) claimer() (c *claimer, stop func() error, err error) {
	n, err := b.newNode(0)
	if err != nil {
		return nil, nil, err
	}
	c = &claimer{}
	if c.api, err = b.startAPI(n); err == nil {
		err = c.api.installCRDs(b, "crds")
	}
	if err == nil {
		err = until(func() error {
			_, err := c.api.do(http.MethodGet, leasesPath, nil)
			return err
		})
	}
	if err == nil {
		err = c.api.make([]thing{{"/api/v1/nodes", map[string]any{"metadata": called(benchNode, nil)}}})
	}
	if err != nil {
		return nil, nil, errors.Join(err, n.close())
	}
	reach := &rest.Config{
		Host: "https://" + net.JoinHostPort(apiHost, apiPort), BearerToken: apiToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Dial: func(_ context.Context, network, addr string) (net.Conn, error) { return n.dial(network, addr) },
	}
	store := &cluster.Store{Node: benchNode, BootID: "bench", Login: func() (login.Login, error) { return login.Login{REST: reach}, nil }}
	c.keeper = leases.New(leases.Config{
		Node: benchNode, BootID: "bench", File: filepath.Join(n.dir, "leases.json"), Log: slog.New(slog.DiscardHandler),
		Store: func() leases.Store { return store },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.keeper.Run(ctx)
	}()
	return c, func() error {
		cancel()
		<-ended
		return n.close()
	}, nil
}

// claimRow is the first part of row 17.
func claimRow(b *bench) (lines []line, err error) {
	c, stop, err := b.claimer()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	count := claims
	if b.quick {
		count /= 5
	}
	var fresh, again, bare []time.Duration
	var ratios, ratiosAgain []float64
	for i := range 1 + b.rounds { // the first one warms up
		f, a, p, err := c.round(count)
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, logs(c.api.node))
		}
		if i == 0 {
			continue
		}
		fresh, again, bare = append(fresh, f...), append(again, a...), append(bare, p...)
		ratios, ratiosAgain = append(ratios, quantile(f, 0.5)/quantile(p, 0.5)), append(ratiosAgain, quantile(a, 0.5)/quantile(p, 0.5))
	}
	show := func(took []time.Duration) string {
		return fmt.Sprintf("%.1f (%.1f) ms", quantile(took, 0.5), quantile(took, 0.99))
	}
	of := func(what string, took []time.Duration, ratios []float64) line {
		return line{row: "17", what: what + " / two bare API writes, p50 (p99)", load: "1 par", ours: show(took), peer: show(bare), got: median(ratios), unit: " x", bound: atMost(1.3, 1.3)}
	}
	return []line{of("an address and its MAC leased the first time", fresh, ratios), of("the same leased again", again, ratiosAgain)}, nil
}

// round is A B A B: new addresses leased, and again after they were given back; as many
// objects written twice.
func (c *claimer) round(count int) (fresh, again, bare []time.Duration, err error) {
	for range 2 {
		specs := c.specs(count)
		for _, took := range []*[]time.Duration{&fresh, &again} {
			if err := c.bind(specs, took); err != nil {
				return nil, nil, nil, err
			}
			c.keeper.Free(specs)
			if err := c.reserved(specs); err != nil {
				return nil, nil, nil, err
			}
		}
		if err := c.write(count, &bare); err != nil {
			return nil, nil, nil, err
		}
	}
	return fresh, again, bare, nil
}

// specs are interfaces that claim an address and a MAC each that nobody has claimed.
func (c *claimer) specs(count int) (out []core.Spec) {
	for range count {
		c.serial++
		pod := fmt.Sprintf("pod-%d", c.serial)
		high, low := byte(c.serial>>8), byte(c.serial) //nolint:gosec // G115: some hundred
		by := "PodNetwork bench/" + pod
		out = append(out, core.Spec{
			Pod: core.Pod{Namespace: benchNS, Name: pod, UID: "uid-" + pod}, Key: core.Key{Container: fmt.Sprintf("%064x", c.serial), IfName: "net1"},
			Netns: core.Netns{BootID: "bench"},
			Claims: []core.Claim{
				{Domain: "bench", Addr: netip.AddrFrom4([4]byte{10, 30, high, low}), Declared: by},
				{Domain: "bench", MAC: core.MAC{2, 0, 0, 0, high, low}, Declared: by},
			},
		})
	}
	return out
}

func (c *claimer) bind(specs []core.Spec, took *[]time.Duration) error {
	for i := range specs {
		begun := time.Now()
		if err := c.keeper.Bind(context.Background(), specs[i:i+1]); err != nil {
			return err
		}
		*took = append(*took, time.Since(begun))
	}
	return nil
}

// reserved waits until the API server says that nobody has what specs claim.
func (c *claimer) reserved(specs []core.Spec) error {
	for _, s := range specs {
		for _, claim := range s.Claims {
			name := lease.Name(claim)
			err := until(func() error {
				raw, err := c.api.do(http.MethodGet, leasesPath+"/"+name, nil)
				var have leased
				if err == nil {
					err = json.Unmarshal(raw, &have)
				}
				if err == nil && have.Spec.Holder.Sandbox != "" {
					err = fmt.Errorf("lease %s is not given back", name)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// leased is what is read of an AddressLease.
type leased struct {
	Metadata struct{ Name string }
	Spec     struct {
		Address string
		Owner   struct{ Pod string }
		Holder  struct{ Sandbox string }
	}
	Status struct{ Phase string }
}

// write makes objects as large as a lease and writes each once more: without a look at
// what is there, and without a second one beside it.
func (c *claimer) write(count int, took *[]time.Duration) error {
	for range count {
		c.serial++
		ip := netip.AddrFrom4([4]byte{10, 31, byte(c.serial >> 8), byte(c.serial)}).String() //nolint:gosec // G115: some hundred
		pod := fmt.Sprintf("pod-%d", c.serial)
		body := map[string]any{
			"apiVersion": "net.fairlead.io/v1alpha1", "kind": "AddressLease", "metadata": map[string]any{"name": "bench." + ip},
			"spec": map[string]any{
				"domain": "bench", "address": ip, "declaredBy": "PodNetwork bench/" + pod,
				"owner":  map[string]any{"namespace": benchNS, "pod": pod, "interface": "net1"},
				"holder": map[string]any{"podUID": "uid-" + pod, "sandbox": fmt.Sprintf("%064x", c.serial), "node": benchNode, "bootID": "bench", "epoch": 1},
			},
			"status": map[string]any{"phase": "Bound", "since": time.Now().UTC().Format(time.RFC3339)},
		}
		begun := time.Now()
		raw, err := c.api.do(http.MethodPost, leasesPath, body)
		var made struct{ Metadata map[string]any }
		if err == nil {
			err = json.Unmarshal(raw, &made)
		}
		if err == nil {
			body["metadata"] = made.Metadata
			_, err = c.api.do(http.MethodPut, leasesPath+"/bench."+ip, body)
		}
		if err != nil {
			return err
		}
		*took = append(*took, time.Since(begun))
	}
	return nil
}
