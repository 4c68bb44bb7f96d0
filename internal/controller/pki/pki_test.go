package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/pki"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

const life = time.Hour

func sign(t *testing.T, r pki.Ring, signer, name, organization string, now time.Time) *x509.Certificate {
	t.Helper()
	_, text, err := pki.NewRequest(name, organization)
	require.NoError(t, err)
	b, _ := pem.Decode(text)
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	require.NoError(t, err)
	out, err := r.Sign(pki.Request{Signer: signer, PEM: text}, csr, now, life)
	require.NoError(t, err)
	b, _ = pem.Decode(out)
	leaf, err := x509.ParseCertificate(b.Bytes)
	require.NoError(t, err)
	return leaf
}

// TestReplacement: at every moment who reads the bundle trusts every certificate
// that is not over, and a former CA leaves the bundle after its last one.
func TestReplacement(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ring, err := pki.NewRing("central", now)
	require.NoError(t, err)
	first := ring.Issuing.Cert
	var leaves []*x509.Certificate
	step := func(published, replace bool) {
		t.Helper()
		text, err := ring.Write()
		require.NoError(t, err)
		ring, err = pki.ReadRing(text)
		require.NoError(t, err)
		ring, err = ring.Step("central", now, life, published, replace)
		require.NoError(t, err)
		leaves = append(leaves, sign(t, ring, fairlead.SignerCentral, "a", fairlead.OrganizationCentral, now))
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(ring.Bundle()))
		for _, leaf := range leaves {
			if now.Before(leaf.NotAfter) {
				_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
				require.NoError(t, err)
			}
		}
	}
	step(true, false)
	require.Equal(t, first, ring.Bundle(), "nothing is due")
	step(true, true)
	require.Equal(t, first, ring.Issuing.Cert)
	require.Contains(t, ring.Bundle(), ring.Next.Cert)
	now = now.Add(24 * time.Hour)
	step(false, false)
	require.Equal(t, first, ring.Issuing.Cert, "it is published nowhere")
	step(true, false)
	require.Equal(t, first, ring.Issuing.Cert, "nobody has had time to read it")
	now = now.Add(life / 10)
	step(true, false)
	require.NotEqual(t, first, ring.Issuing.Cert)
	require.Contains(t, ring.Bundle(), first, "its certificates are in use")
	now = now.Add(life - time.Second)
	step(true, false)
	require.Contains(t, ring.Bundle(), first)
	now = now.Add(time.Second)
	step(true, false)
	require.Equal(t, ring.Issuing.Cert, ring.Bundle())

	now = now.Add(7 * 365 * 24 * time.Hour) // two thirds of its life are over
	step(true, false)
	require.NotNil(t, ring.Next)
}

// TestNextThoughTheClockWasSetBack: a next CA that all read issues in time, by the clock that
// there is now.
func TestNextThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ring, err := pki.NewRing("central", now)
	require.NoError(t, err)
	first := ring.Issuing.Cert
	for _, at := range []time.Time{now, now, now.Add(-21 * 24 * time.Hour), now.Add(-21*24*time.Hour + life/10)} {
		ring, err = ring.Step("central", at, life, true, ring.Next == nil && ring.Issuing.Cert == first)
		require.NoError(t, err)
	}
	require.NotEqual(t, first, ring.Issuing.Cert)
}

// TestLostSecret: certificates of CAs whose keys are lost are good as long as they
// would have been.
func TestLostSecret(t *testing.T) {
	t.Parallel()
	now := time.Now()
	lost, err := pki.NewRing("central", now)
	require.NoError(t, err)
	ring, err := pki.NewRing("central", now)
	require.NoError(t, err)
	ring = ring.Adopt(lost.Bundle(), now, life)
	require.Contains(t, ring.Bundle(), lost.Bundle())
	ring, err = ring.Step("central", now.Add(life), life, true, false)
	require.NoError(t, err)
	require.NotContains(t, ring.Bundle(), lost.Bundle())
	_, err = pki.ReadRing(nil)
	require.Error(t, err, "what is no ring is not an empty one")
	lost.Issuing.Key = ring.Issuing.Key
	text, err := lost.Write()
	require.NoError(t, err)
	_, err = pki.ReadRing(text)
	require.ErrorContains(t, err, "another certificate's")
}

// TestUses: a chassis' certificate is no server's, and each CA vouches for its own
// alone.
func TestUses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	central, err := pki.NewRing("central", now)
	require.NoError(t, err)
	chassis, err := pki.NewRing("chassis", now)
	require.NoError(t, err)
	leaf := sign(t, chassis, fairlead.SignerChassis, "node-1", fairlead.OrganizationChassis, now)
	require.Equal(t, "node-1", leaf.Subject.CommonName)
	require.NoError(t, pki.Trusts(chassis.Bundle(), leaf, nil, x509.ExtKeyUsageClientAuth))
	require.Error(t, pki.Trusts(chassis.Bundle(), leaf, nil, x509.ExtKeyUsageServerAuth))
	require.Error(t, pki.Trusts(central.Bundle(), leaf, nil, x509.ExtKeyUsageClientAuth))
	require.True(t, pki.Renewal(leaf).Before(now.Add(life*2/3)))
}

// TestWhoGetsCertificates says of each request whether it is signed, and why not.
func TestWhoGetsCertificates(t *testing.T) {
	t.Parallel()
	const agent, central = "system:serviceaccount:ns:fairlead", "system:serviceaccount:ns:fairlead-central"
	client, both := []string{"client auth", "digital signature"}, []string{"server auth", "client auth", "digital signature"}
	for name, c := range map[string]struct {
		cn, organization string
		r                pki.Request
		want             string
	}{
		"chassis":             {"n1", fairlead.OrganizationChassis, pki.Request{Signer: fairlead.SignerChassis, User: agent, Node: []string{"n1"}, Usages: client}, ""},
		"central":             {"a", fairlead.OrganizationCentral, pki.Request{Signer: fairlead.SignerCentral, User: central, Usages: both}, ""},
		"another node":        {"n2", fairlead.OrganizationChassis, pki.Request{Signer: fairlead.SignerChassis, User: agent, Node: []string{"n1"}, Usages: client}, "chassis n2 is another node's: the token of " + agent + " is bound to node n1"},
		"no node":             {"n1", fairlead.OrganizationChassis, pki.Request{Signer: fairlead.SignerChassis, User: agent, Usages: client}, "bound to no node"},
		"two nodes":           {"n1", fairlead.OrganizationChassis, pki.Request{Signer: fairlead.SignerChassis, User: agent, Node: []string{"n1", "n2"}, Usages: client}, "bound to no node"},
		"no account of ours":  {"n1", fairlead.OrganizationChassis, pki.Request{Signer: fairlead.SignerChassis, User: "system:serviceaccount:tenant:x", Node: []string{"n1"}, Usages: client}, "is no service account"},
		"chassis as server":   {"n1", fairlead.OrganizationChassis, pki.Request{Signer: fairlead.SignerChassis, User: agent, Node: []string{"n1"}, Usages: both}, "usages"},
		"chassis as central":  {"n1", fairlead.OrganizationCentral, pki.Request{Signer: fairlead.SignerChassis, User: agent, Node: []string{"n1"}, Usages: client}, "organization"},
		"central for chassis": {"n1", fairlead.OrganizationCentral, pki.Request{Signer: fairlead.SignerCentral, User: agent, Node: []string{"n1"}, Usages: both}, "is neither"},
		"no name":             {"", fairlead.OrganizationCentral, pki.Request{Signer: fairlead.SignerCentral, User: central, Usages: both}, "no common name"},
		"other signer":        {"a", fairlead.OrganizationCentral, pki.Request{Signer: "x", User: central, Usages: both}, "not ours"},
	} {
		_, text, err := pki.NewRequest(c.cn, c.organization)
		require.NoError(t, err)
		c.r.PEM = text
		_, err = c.r.Check("ns")
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, pki.ErrDenied, name)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := pki.Request{Signer: fairlead.SignerCentral, PEM: []byte(strings.Repeat("x", 9))}.Check("ns")
	require.ErrorIs(t, err, pki.ErrDenied)
}

// TestDueThoughTheClockWasSetBack: a certificate is replaced when so much time has passed as it
// was to be used, whatever the clock says.
func TestDueThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now, off := time.Now(), time.Duration(0)
		ring, err := pki.NewRing("central", now)
		require.NoError(t, err)
		leaf := sign(t, ring, fairlead.SignerCentral, "a", fairlead.OrganizationCentral, now)
		term := pki.Term{Term: retry.Term{Wall: func() time.Time { return time.Now().Add(off) }}}
		require.False(t, term.Due(leaf))
		off = -2 * life
		time.Sleep(pki.Renewal(leaf).Sub(now) - time.Minute)
		require.False(t, term.Due(leaf))
		time.Sleep(time.Minute)
		require.True(t, term.Due(leaf))
	})
}
