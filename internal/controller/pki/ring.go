// Package pki makes the certificates of OVN's parts: a CA with its successors and
// those before it, and what it signs. It is pure: who may have a certificate is
// asked here, where requests come from and where keys lie is not known.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// caLife is how long a CA is good for. It is replaced after two thirds of it.
const caLife = 10 * 365 * 24 * time.Hour

// skew is how far a peer's clock may be behind.
const skew = 5 * time.Minute

// announceLimit bounds how long a next CA is trusted before it issues.
const announceLimit = time.Hour

// CA signs certificates. Both fields are PEM.
type CA struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Next is a CA that is trusted and does not issue yet.
type Next struct {
	CA

	// Since is when everybody could read of it; zero: not yet.
	Since time.Time `json:"since"`
}

// Former is a CA that issues no more and is trusted until the last certificate
// that it issued is over.
type Former struct {
	Cert  string    `json:"cert"`
	Until time.Time `json:"until"`
}

// Ring is a CA with those before and after it, as the Secret has it.
type Ring struct {
	Issuing CA       `json:"issuing"`
	Next    *Next    `json:"next,omitempty"`
	Former  []Former `json:"former,omitempty"`
}

// NewRing makes a CA.
func NewRing(name string, now time.Time) (Ring, error) {
	ca, err := newCA(name, now)
	return Ring{Issuing: ca}, err
}

// ReadRing reads what Write wrote. What is no ring is an error: a key that cannot
// be read is not one that is missing.
func ReadRing(text []byte) (Ring, error) {
	var r Ring
	if err := json.Unmarshal(text, &r); err != nil {
		return Ring{}, fmt.Errorf("CA: %w", err)
	}
	if _, _, err := r.Issuing.parse(); err != nil {
		return Ring{}, err
	}
	if r.Next != nil {
		if _, _, err := r.Next.parse(); err != nil {
			return Ring{}, err
		}
	}
	return r, nil
}

// Write is the ring as a text.
func (r Ring) Write() ([]byte, error) { return json.Marshal(r) }

// Bundle is the certificates to trust, PEM.
func (r Ring) Bundle() string {
	out := r.Issuing.Cert
	if r.Next != nil {
		out += r.Next.Cert
	}
	for _, f := range r.Former {
		out += f.Cert
	}
	return out
}

// Step is what is to be done of a CA's replacement at a time. life is that of
// certificates; published tells that the bundle is where all read it; replace
// asks for another CA. It gives the ring as it is, or the next one:
//
//   - a next CA is made, and is in the bundle from then on;
//   - the time at which the bundle is published is noted, anew when the clock was set back;
//   - a tenth of life later, one hour at most, the next CA issues, and the one
//     before is a former one;
//   - when the last certificate of a former CA is over, it leaves the bundle.
func (r Ring) Step(name string, now time.Time, life time.Duration, published, replace bool) (Ring, error) {
	var keep []Former
	for _, f := range r.Former {
		if now.Before(f.Until) {
			keep = append(keep, f)
		}
	}
	r.Former = keep
	cert, _, err := r.Issuing.parse()
	if err != nil {
		return r, err
	}
	replace = replace || now.After(cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore)/3))
	switch {
	case r.Next == nil && replace:
		ca, err := newCA(name, now)
		if err != nil {
			return r, err
		}
		r.Next = &Next{CA: ca}
	case r.Next == nil || !published:
	case !r.Next.noted(now):
		r.Next = &Next{CA: r.Next.CA, Since: now}
	case now.Sub(r.Next.Since) >= min(life/10, announceLimit):
		r.Former = append([]Former{{Cert: r.Issuing.Cert, Until: now.Add(life)}}, r.Former...)
		r.Issuing, r.Next = r.Next.CA, nil
	}
	return r, nil
}

// noted tells that the time at which a next CA was published is known, by the clock that there
// is now: it may have been set back.
func (n *Next) noted(now time.Time) bool { return !n.Since.IsZero() && !now.Before(n.Since) }

// Adopt trusts, for life, the certificates of a bundle too: those of a ring that
// is lost, of which certificates are in use.
func (r Ring) Adopt(bundle string, now time.Time, life time.Duration) Ring {
	for rest := []byte(bundle); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return r
		}
		if _, err := x509.ParseCertificate(b.Bytes); err == nil {
			r.Former = append(r.Former, Former{Cert: block("CERTIFICATE", b.Bytes), Until: now.Add(life)})
		}
	}
}

func newCA(name string, now time.Time) (CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return CA{}, fmt.Errorf("key of CA %s: %w", name, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return CA{}, err
	}
	// The number makes names of two CAs differ: a peer finds the issuer by name.
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s %x", name, serial)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return CA{}, fmt.Errorf("certificate of CA %s: %w", name, err)
	}
	text, err := keyText(key)
	return CA{Cert: block("CERTIFICATE", der), Key: text}, err
}

func (c CA) parse() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, _ := pem.Decode([]byte(c.Cert))
	key, _ := pem.Decode([]byte(c.Key))
	if cert == nil || key == nil {
		return nil, nil, errors.New("CA: certificate or key is no PEM")
	}
	crt, err := x509.ParseCertificate(cert.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("CA: %w", err)
	}
	private, err := x509.ParseECPrivateKey(key.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("CA: %w", err)
	}
	if !private.PublicKey.Equal(crt.PublicKey) {
		return nil, nil, errors.New("CA: the key is another certificate's")
	}
	return crt, private, nil
}

func serialNumber() (*big.Int, error) {
	b := make([]byte, 15)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	b[0] |= 0x40 // positive, and of one length
	return new(big.Int).SetBytes(b), nil
}

func keyText(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return block("EC PRIVATE KEY", der), err
}

func block(kind string, der []byte) string {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}) // it fails on headers alone
	return b.String()
}
