package loop_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/loop"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// TestWrongConfig: what cannot be meant is said before anything is asked of
// anybody, and names its flag.
func TestWrongConfig(t *testing.T) {
	for flag, change := range map[string]func(*loop.Config){
		"--workers":          func(c *loop.Config) { c.Workers = 0 },
		"--lease-duration":   func(c *loop.Config) { c.Lease = 2500 * time.Millisecond },
		"--certificate-life": func(c *loop.Config) { c.CertificateLife = time.Second },
		"--nb":               func(c *loop.Config) { c.NB = "" },
		"--join-cidr":        func(c *loop.Config) { c.JoinCIDR = "100.64.0.0/99" },
		"--kubeconfig":       func(c *loop.Config) { c.Kubeconfig = "/nowhere" },
	} {
		c := loop.Config{
			Kubeconfig: "/nowhere", NB: "unix:/nowhere", JoinCIDR: "100.64.0.0/16", Lease: 15 * time.Second, Workers: 1, CertificateLife: time.Hour,
			Log: slog.New(slog.DiscardHandler),
		}
		change(&c)
		err := loop.Run(t.Context(), c)
		require.ErrorAs(t, err, new(hint.UsageError), flag)
		require.ErrorContains(t, err, flag)
	}
}
