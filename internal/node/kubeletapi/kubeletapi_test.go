package kubeletapi

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// config is of a server that has to ask nobody.
func config(t *testing.T) Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return Config{
		Address: l.Addr().String(), Node: "node1", Names: []string{"127.0.0.1", "node1"},
		Server: &rest.Config{Host: "https://127.0.0.1:1"}, Log: slog.New(slog.DiscardHandler),
	}
}

// TestNeeds: the rights that requests stand for are kubelet's, but for streams.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		method, path, verb string
		sub                []string
	}{
		{"GET", "/pods", "get", []string{"pods", "proxy"}},
		{"HEAD", "/pods", "get", []string{"pods", "proxy"}},
		{"GET", "/pods/", "get", []string{"proxy"}},
		{"GET", "/healthz", "get", []string{"healthz", "proxy"}},
		{"GET", "/containerLogs/ns/p/c", "get", []string{"proxy"}},
		{"POST", "/exec/ns/p/c", "create", []string{"proxy"}},
		{"GET", "/exec/ns/p/c", "create", []string{"proxy"}},
		{"GET", "/%65xec/ns/p/c", "create", []string{"proxy"}},
		{"HEAD", "/attach/ns/p/c", "create", []string{"proxy"}},
		{"GET", "/portForward/ns/p", "create", []string{"proxy"}},
		{"DELETE", "/pods", "delete", []string{"pods", "proxy"}},
		{"BREW", "/pods", "", []string{"pods", "proxy"}},
	} {
		verb, sub := needs(httptest.NewRequest(c.method, c.path, http.NoBody))
		require.Equal(t, c.verb, verb, c.path)
		require.Equal(t, c.sub, sub, c.path)
	}
}

// TestOwnCertificate: it is for the node's names, and made in time.
func TestOwnCertificate(t *testing.T) {
	s, err := New(config(t))
	require.NoError(t, err)
	shows := func() *x509.Certificate {
		cert, err := s.certs.get(nil)
		require.NoError(t, err)
		return cert.Leaf
	}
	first := shows()
	require.NoError(t, first.VerifyHostname("127.0.0.1"))
	require.NoError(t, first.VerifyHostname("node1"))
	require.Equal(t, first.Raw, shows().Raw)
	first.NotAfter = time.Now().Add(ownLeast - time.Minute)
	second := shows()
	require.NotEqual(t, first.Raw, second.Raw)
	require.Greater(t, time.Until(second.NotAfter), ownLeast)
}

// pair writes a certificate that signs itself, and gives it back.
func pair(t *testing.T, cert, key string) tls.Certificate {
	t.Helper()
	text, err := selfSigned("node1", []string{"127.0.0.1"})
	require.NoError(t, err)
	for _, file := range []string{cert, key} {
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	out, err := tls.X509KeyPair(text, text)
	require.NoError(t, err)
	return out
}

// TestFilesChange: certificates and authorities are those of now.
func TestFilesChange(t *testing.T) {
	c, dir := config(t), t.TempDir()
	c.CertFile, c.KeyFile, c.ClientCA = filepath.Join(dir, "crt"), filepath.Join(dir, "key"), filepath.Join(dir, "ca")
	_, err := New(c)
	require.ErrorIs(t, err, os.ErrNotExist)
	first := pair(t, c.CertFile, c.KeyFile)
	_, err = New(c)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(c.ClientCA, []byte("none"), 0o600))
	_, err = New(c)
	require.ErrorContains(t, err, "has no certificate")
	ca := pair(t, c.ClientCA, c.ClientCA)
	s, err := New(c)
	require.NoError(t, err)
	shows := func() []byte {
		cert, err := s.certs.get(nil)
		require.NoError(t, err)
		return cert.Certificate[0]
	}
	require.Equal(t, first.Certificate[0], shows())
	later := time.Now().Add(time.Second)
	require.NoError(t, os.WriteFile(c.CertFile, []byte("half"), 0o600))
	require.NoError(t, os.Chtimes(c.CertFile, later, later))
	require.Equal(t, first.Certificate[0], shows(), "files that do not fit together change nothing")
	second := pair(t, c.CertFile, c.KeyFile)
	require.NoError(t, os.Chtimes(c.CertFile, later.Add(time.Second), later))
	require.Equal(t, second.Certificate[0], shows())

	// A certificate for a server is none for a client.
	err = s.guard.clients.verify([]*x509.Certificate{ca.Leaf})
	require.ErrorAs(t, err, new(x509.CertificateInvalidError))
	require.NoError(t, os.Remove(c.ClientCA))
	require.ErrorIs(t, s.guard.clients.verify([]*x509.Certificate{ca.Leaf}), os.ErrNotExist)
}

// TestNobody: who shows nothing, or what nobody can vouch for, is refused.
func TestNobody(t *testing.T) {
	s, err := New(config(t))
	require.NoError(t, err)
	h := s.guard.before(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") }))
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, "Basic YTpi": http.StatusUnauthorized, "Bearer": http.StatusUnauthorized, "Bearer  ": http.StatusUnauthorized,
		"Bearer x": http.StatusInternalServerError, // the API server is away
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/pods", http.NoBody), httptest.NewRecorder()
		r.Header.Set("Authorization", token)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, token)
	}
}

// TestCache: answers end, and are no more than there may be.
func TestCache(t *testing.T) {
	var c cache[int]
	key := func(i int) (out [sha256.Size]byte) {
		binary.LittleEndian.PutUint64(out[:], uint64(i))
		return out
	}
	c.put(key(0), 7, -time.Second)
	_, has := c.get(key(0))
	require.False(t, has)
	for i := range 3 * mostKept {
		c.put(key(i), i, time.Hour)
		v, has := c.get(key(i))
		require.True(t, has)
		require.Equal(t, i, v)
		require.LessOrEqual(t, len(c.kept), mostKept)
	}
}
