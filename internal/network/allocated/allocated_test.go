package allocated_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/allocated"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// source has one pod, which gets its addresses after a time, or never.
type source struct {
	after time.Duration // 0: never
	gone  bool          // the pod's name is another's at its first change
	why   string        // there is no address, beside what the pod's annotations say
	notes map[string]string
}

func (s *source) Pod(_ context.Context, p core.Pod) (*resolve.Pod, error) {
	return &resolve.Pod{Pod: p, Annotations: s.notes}, nil
}

func (s *source) Why(context.Context, core.Pod) string { return s.why }

func (s *source) NAD(context.Context, string, string) (*resolve.NAD, error) {
	return nil, core.ErrNotFound
}

func (s *source) Subnets(context.Context) ([]core.Subnet, error) {
	return []core.Subnet{{
		Name: "ovn-default", Provider: "ovn", Default: true,
		CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("10.16.0.1")},
	}}, nil
}

func (s *source) Differs(ctx context.Context, _ core.Pod, _ map[string]string) error {
	if s.gone {
		return core.ErrNotFound
	}
	if s.after == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(s.after)
	const at = "ovn.kubernetes.io/"
	s.notes = map[string]string{
		at + "allocated": "true", at + "routed": "true", at + "ip_address": "10.16.0.9", at + "mac_address": "0a:00:00:00:00:09",
		at + "logical_switch": "ovn-default",
	}
	return nil
}

// TestResolve: an ADD goes on when the addresses are there, and says what is
// missing when it has waited long enough.
func TestResolve(t *testing.T) {
	in := resolve.Input{OVN: true, Request: core.Request{
		Key: core.Key{Container: "c", IfName: "eth0"}, Pod: core.Pod{Namespace: "ns", Name: "p", UID: "u"},
		Conf: core.Conf{CNIVersion: "1.0.0", Name: "fairlead", Type: "fairlead"},
	}}
	synctest.Test(t, func(t *testing.T) {
		wants, err := allocated.Resolve(t.Context(), &source{after: 20 * time.Second}, in)
		require.NoError(t, err)
		require.Equal(t, "10.16.0.9", wants[0].Steps[0].NIC.IPs[0].String())

		began := time.Now()
		_, err = allocated.Resolve(t.Context(), &source{}, in)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
		require.ErrorContains(t, err, "pod ns/p has no address after 30s")

		// The cause: that nobody answers, what the controller wrote last, else who may know.
		for want, src := range map[string]*source{
			"no controller answers":                   {why: "no controller answers", notes: map[string]string{v1.AnnNoAddress: "Subnet web is full"}},
			"the controller says: Subnet web is full": {notes: map[string]string{v1.AnnNoAddress: "Subnet web is full"}},
			"the pod's events say why":                {},
		} {
			_, err = allocated.Resolve(t.Context(), src, in)
			require.ErrorContains(t, err, want)
		}

		_, err = allocated.Resolve(t.Context(), &source{gone: true}, in)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
		require.ErrorContains(t, err, "is gone")
	})
}
