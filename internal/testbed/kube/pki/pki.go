// Package pki makes the certificates of a test's cluster. It must not know what
// they are for.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime of all certificates; a cluster lives for minutes.
const lifetime = 7 * 24 * time.Hour

// Authority signs everything in one cluster: servers and clients.
type Authority struct {
	PEM []byte // the certificate

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// New makes an authority that signs itself.
func New() (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	tmpl, err := template("kube-testbed")
	if err != nil {
		return nil, err
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{PEM: block("CERTIFICATE", der), cert: cert, key: key}, nil
}

// Write puts the authority into dir as ca.crt and ca.key.
func (a *Authority) Write(dir string) error {
	key, err := keyPEM(a.key)
	if err != nil {
		return err
	}
	return Pair{Cert: a.PEM, Key: key}.Write(dir, "ca")
}

// template is what all certificates share.
func template(name string, groups ...string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
	}, nil
}

// Client makes a certificate for a user; Kubernetes reads the user from the
// common name and the groups from the organizations.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	tmpl, err := template(user, groups...)
	if err != nil {
		return Pair{}, err
	}
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(tmpl)
}

// Server makes a certificate for addresses and names.
func (a *Authority) Server(ips []net.IP, names ...string) (Pair, error) {
	tmpl, err := template(names[0])
	if err != nil {
		return Pair{}, err
	}
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	tmpl.IPAddresses, tmpl.DNSNames = ips, names
	return a.issue(tmpl)
}

func (a *Authority) issue(tmpl *x509.Certificate) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue %s: %w", tmpl.Subject.CommonName, err)
	}
	k, err := keyPEM(key)
	return Pair{Cert: block("CERTIFICATE", der), Key: k}, err
}

// Sign signs a certificate request (PEM) for a client, from and until two times.
func (a *Authority) Sign(request []byte, from, until time.Time) ([]byte, error) {
	b, _ := pem.Decode(request)
	if b == nil {
		return nil, errors.New("the request is not PEM")
	}
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	tmpl, err := template("")
	if err != nil {
		return nil, err
	}
	tmpl.Subject, tmpl.NotBefore, tmpl.NotAfter = csr.Subject, from, until
	tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, csr.PublicKey, a.key)
	return block("CERTIFICATE", der), err
}

// Key makes a private key, PEM.
func Key() ([]byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return keyPEM(key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return block("EC PRIVATE KEY", der), err
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Write puts the pair into dir as NAME.crt and NAME.key.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600)
}
