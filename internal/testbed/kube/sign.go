package kube

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
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
	b, _ := pem.Decode(request)
	require.NotNil(c.t, b, "the request is not PEM")
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	require.NoError(c.t, err)
	require.NoError(c.t, csr.CheckSignature())
	tmpl, err := template("")
	require.NoError(c.t, err)
	tmpl.Subject = csr.Subject
	now := time.Now()
	tmpl.NotBefore, tmpl.NotAfter = now.Add(-age), now.Add(left)
	tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.s.ca.cert, csr.PublicKey, c.s.ca.key)
	require.NoError(c.t, err)
	return block("CERTIFICATE", der)
}
