package kube

import (
	"time"

	"github.com/stretchr/testify/require"
)

// Sign signs a certificate request (PEM) for a client, as the signer
// kubernetes.io/kube-apiserver-client does: there is no controller that would.
// The certificate began a tenth of life ago and is good for the rest of it.
func (c *Cluster) Sign(request []byte, life time.Duration) []byte {
	c.t.Helper()
	return c.SignAged(request, life/10, life-life/10)
}

// SignAged is Sign of a certificate that began age ago and is good for the time
// that is left.
func (c *Cluster) SignAged(request []byte, age, left time.Duration) []byte {
	c.t.Helper()
	now := time.Now()
	cert, err := c.s.ca.Sign(request, now.Add(-age), now.Add(left))
	require.NoError(c.t, err)
	return cert
}
