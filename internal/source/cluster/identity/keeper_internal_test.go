package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// issued is a certificate of thirty days that begins now.
func issued(t *testing.T, node string) login.Issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: node}, NotBefore: time.Now(), NotAfter: time.Now().Add(30 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return login.Issued{
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

// TestDueThoughTheClockWasSetBack: a node whose clock is set back by weeks asks for its next
// certificate while others, whose clock is right, take the present one.
func TestDueThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		k, off := New(Config{Node: "n1", Dir: dir}), time.Duration(0)
		k.cas = "some"
		k.term.Wall = func() time.Time { return time.Now().Add(off) }
		require.NoError(t, k.store.put(issued(t, "n1"), k.cas))
		due := func() time.Duration {
			t.Helper()
			left, err := k.due()
			require.NoError(t, err)
			return left
		}
		require.Greater(t, due(), 15*day)
		off = -21 * day
		time.Sleep(10 * day)
		require.Greater(t, due(), 5*day)
		time.Sleep(10 * day)
		require.LessOrEqual(t, due(), time.Duration(0))
	})
}
