package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

// Key usages, as CertificateSigningRequests name them.
const (
	UsageSignature = "digital signature"
	UsageClient    = "client auth"
	UsageServer    = "server auth"
)

// Request is a CertificateSigningRequest.
type Request struct {
	Signer string
	PEM    []byte
	User   string   // who asks
	Node   []string // the nodes that the asker's token is bound to, as the API server says
	Usages []string
	Life   time.Duration // that is asked for, 0 = the signer's
}

// ErrDenied is why a request will never be signed.
var ErrDenied = errors.New("denied")

func denied(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDenied, fmt.Errorf(format, args...))
}

// Check says whether somebody of a namespace may have what is asked for, and what
// he gets then; else it wraps ErrDenied.
func (r Request) Check(namespace string) (*x509.CertificateRequest, error) {
	csr, err := parse(r.PEM)
	if err != nil {
		return nil, denied("%v", err)
	}
	account := "system:serviceaccount:" + namespace + ":"
	switch {
	case len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.EmailAddresses)+len(csr.URIs) > 0:
		return nil, denied("it asks for alternative names")
	case csr.Subject.CommonName == "":
		return nil, denied("it has no common name")
	case r.Signer == fairlead.SignerChassis:
		return csr, r.chassis(csr, account)
	case r.Signer == fairlead.SignerCentral:
		return csr, r.central(csr, account)
	}
	return nil, denied("signer %s is not ours", r.Signer)
}

func (r Request) chassis(csr *x509.CertificateRequest, account string) error {
	name := csr.Subject.CommonName
	switch {
	case !slices.Equal(csr.Subject.Organization, []string{fairlead.OrganizationChassis}):
		return denied("its organization is %q, not %s", csr.Subject.Organization, fairlead.OrganizationChassis)
	case !strings.HasPrefix(r.User, account):
		return denied("%s is no service account %s*", r.User, account)
	case len(r.Node) != 1:
		return denied("the token of %s is bound to no node: ask with that of a pod on node %s", r.User, name)
	case r.Node[0] != name:
		return denied("chassis %s is another node's: the token of %s is bound to node %s", name, r.User, r.Node[0])
	}
	return usages(r.Usages, UsageSignature, UsageClient)
}

func (r Request) central(csr *x509.CertificateRequest, account string) error {
	switch {
	case !slices.Equal(csr.Subject.Organization, []string{fairlead.OrganizationCentral}):
		return denied("its organization is %q, not %s", csr.Subject.Organization, fairlead.OrganizationCentral)
	case r.User != account+fairlead.CentralAccount && r.User != account+fairlead.ControllerAccount:
		return denied("%s is neither %s%s nor %s", r.User, account, fairlead.CentralAccount, fairlead.ControllerAccount)
	}
	return usages(r.Usages, UsageSignature, UsageClient, UsageServer)
}

// usages are all of those that are wanted, and no others.
func usages(got []string, want ...string) error {
	got = slices.Clone(got)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return denied("its usages are %q, not %q", got, want)
	}
	return nil
}

// parse reads a request of a key that is strong enough.
func parse(text []byte) (*x509.CertificateRequest, error) {
	b, _ := pem.Decode(text)
	if b == nil {
		return nil, errors.New("it is no PEM")
	}
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		return nil, err
	}
	switch key := csr.PublicKey.(type) {
	case *ecdsa.PublicKey:
	case *rsa.PublicKey:
		if key.Size() < 256 {
			return nil, errors.New("a key of RSA has 2048 bits at least")
		}
	default:
		return nil, fmt.Errorf("a key is ECDSA or RSA, not %T", key)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	return csr, nil
}

// Sign makes the certificate of a request that Check let pass. It is good for
// life, or shorter where less is asked for.
func (r Ring) Sign(req Request, csr *x509.CertificateRequest, now time.Time, life time.Duration) ([]byte, error) {
	ca, key, err := r.Issuing.parse()
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	if req.Life > 0 {
		life = min(life, req.Life)
	}
	end := now.Add(life)
	if end.After(ca.NotAfter) {
		end = ca.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: serial, NotBefore: now.Add(-skew), NotAfter: end, BasicConstraintsValid: true,
		Subject:  pkix.Name{CommonName: csr.Subject.CommonName, Organization: csr.Subject.Organization},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if req.Signer == fairlead.SignerCentral {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, csr.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", csr.Subject.CommonName, err)
	}
	return []byte(block("CERTIFICATE", der)), nil
}

// NewRequest makes a key, and what a certificate is asked with, both PEM.
func NewRequest(name, organization string) (key, request []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("key of %s: %w", name, err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name, Organization: []string{organization}},
	}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate request of %s: %w", name, err)
	}
	text, err := keyText(private)
	return []byte(text), []byte(block("CERTIFICATE REQUEST", der)), err
}

// Renewal is when a certificate of ours is to be replaced: before two thirds of its
// life.
func Renewal(leaf *x509.Certificate) time.Time {
	issued := leaf.NotBefore.Add(skew)
	return issued.Add(leaf.NotAfter.Sub(issued) * 3 / 5)
}

// Term is a certificate's that is in use.
type Term struct{ retry.Term }

// Due tells that a certificate of ours is to be replaced, also where the clock was set back
// since it was first asked.
func (t *Term) Due(leaf *x509.Certificate) bool {
	at := Renewal(leaf)
	return t.Left(leaf.SerialNumber.String(), at, at.Sub(leaf.NotBefore)-skew) <= 0
}

// Trusts tells that a certificate leads to one of a bundle. Names are not
// compared: OVN's certificates say what somebody is, not where.
func Trusts(bundle string, leaf *x509.Certificate, more []*x509.Certificate, use x509.ExtKeyUsage) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	for _, c := range more {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}

// Client is how somebody with certificate pair connects to servers that bundle
// vouches for; both are asked at each connection.
func Client(pair func() (*tls.Certificate, error), bundle func() (string, error)) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, without the name, which these certificates do not have
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair()
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			roots, err := bundle()
			if err != nil {
				return err
			}
			if len(s.PeerCertificates) == 0 {
				return errors.New("the server shows no certificate")
			}
			return Trusts(roots, s.PeerCertificates[0], s.PeerCertificates[1:], x509.ExtKeyUsageServerAuth)
		},
	}
}
