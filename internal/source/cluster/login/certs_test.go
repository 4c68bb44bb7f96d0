package login_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// TestRenewal: a certificate is renewed after half of its life and before two thirds of
// it, however short that is beside the time by which signers date it back.
func TestRenewal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct{ back, life time.Duration }{
		"ours for a month":     {5 * time.Minute, 30 * 24 * time.Hour},
		"ours of a short life": {5 * time.Minute, 10 * time.Second},
		"Kubernetes' shortest": {5 * time.Minute, 10 * time.Minute},
		"not dated back":       {0, 2 * time.Minute},
	} {
		leaf := &x509.Certificate{NotBefore: now.Add(-c.back), NotAfter: now.Add(c.life)}
		for range 100 {
			after := login.Renewal(leaf).Sub(now)
			require.Greater(t, after, c.life/2, name)
			require.Less(t, after, c.life*2/3, name)
		}
	}
}
