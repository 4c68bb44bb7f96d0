package kubeletapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

// A certificate of our own: its life, and how much of that is left when the next
// is made.
const (
	ownLife  = 365 * 24 * time.Hour
	ownLeast = 30 * 24 * time.Hour
)

// stamp tells one content of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

func stampOf(file string) (stamp, error) {
	st, err := os.Stat(file)
	if err != nil {
		return stamp{}, err
	}
	return stamp{st.ModTime(), st.Size()}, nil
}

// serving is the server's certificate.
type serving struct {
	conf Config

	mu   sync.Mutex
	cert *tls.Certificate
	from [2]stamp // files it was read from
}

// get is the certificate of now. Files that are being replaced, and so do not
// fit together, leave the one before in force.
func (s *serving) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	load := s.given
	if s.conf.CertFile == "" && s.conf.KeyFile == "" {
		load = s.own
	}
	if err := load(); err != nil && s.cert == nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	return s.cert, nil
}

// given reads the files of somebody else, if they have changed.
func (s *serving) given() error {
	var now [2]stamp
	for i, file := range []string{s.conf.CertFile, s.conf.KeyFile} {
		var err error
		if now[i], err = stampOf(file); err != nil {
			return err
		}
	}
	if s.cert != nil && now == s.from {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.conf.CertFile, s.conf.KeyFile)
	if err == nil {
		s.cert, s.from = &pair, now
	}
	return err
}

// own makes a certificate that we sign ourselves. It is not kept: nobody can
// verify it anyway, and a key that is nowhere is in nobody's backup.
func (s *serving) own() error {
	if s.cert != nil && time.Until(s.cert.Leaf.NotAfter) > ownLeast {
		return nil
	}
	text, err := selfSigned(s.conf.Node, s.conf.Names)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(text, text)
	if err == nil {
		s.cert = &pair
	}
	return err
}

// split tells addresses from names.
func split(all []string) (ips []net.IP, names []string) {
	for _, name := range all {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, name)
		}
	}
	return ips, names
}

// selfSigned makes a key and a certificate of a node, PEM.
func selfSigned(node string, names []string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: node},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	c.IPAddresses, c.DNSNames = split(names)
	cert, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...), nil
}

// authorities are those of clients' certificates.
type authorities struct {
	file string

	mu   sync.Mutex
	now  *x509.CertPool
	from stamp
}

// pool is the file's content. One that cannot be read believes nobody: who takes
// an authority away wants its clients out.
func (a *authorities) pool() (*x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st, err := stampOf(a.file)
	if err != nil {
		return nil, fmt.Errorf("authorities of clients: %w", err)
	}
	if a.now != nil && st == a.from {
		return a.now, nil
	}
	text, err := os.ReadFile(a.file)
	if err != nil {
		return nil, fmt.Errorf("authorities of clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authorities of clients: %s has no certificate", a.file)
	}
	a.now, a.from = pool, st
	return pool, nil
}

// verify tells whose certificate a client shows, the others that it sends being
// its way to an authority.
func (a *authorities) verify(shown []*x509.Certificate) error {
	pool, err := a.pool()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	_, err = shown[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
