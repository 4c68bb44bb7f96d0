package login

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/lib/retry"
)

// requestPath is where certificates are asked for. What is sent and read there
// is little: types of our own do, and cost no memory.
const requestPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// csr is the part of certificates.k8s.io/v1 CertificateSigningRequest that is
// sent and read.
type csr struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name,omitempty"`
		GenerateName string `json:"generateName,omitempty"`
	} `json:"metadata"`
	Spec   csrSpec   `json:"spec"`
	Status csrStatus `json:"status,omitzero"`
}

type csrSpec struct {
	Request           []byte   `json:"request"` // PEM
	SignerName        string   `json:"signerName"`
	ExpirationSeconds int32    `json:"expirationSeconds,omitempty"`
	Usages            []string `json:"usages"`
}

type csrStatus struct {
	Certificate []byte         `json:"certificate,omitempty"` // PEM
	Conditions  []csrCondition `json:"conditions,omitempty"`
}

type csrCondition struct {
	Type    string `json:"type"` // Approved, Denied or Failed
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// requester asks one API server for certificates.
type requester struct{ rest.Interface }

func newRequester(cfg *rest.Config) (requester, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status: what refusals are
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return requester{}, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return requester{c}, nil
}

// Ask is a certificate that is asked for, to show oneself as a client with.
type Ask struct {
	Name, Group string        // common name and organization
	Signer      string        // who is to sign it
	Duration    time.Duration // asked for, 0 for nothing; the signer decides
}

// Issued is a certificate and its key (PEM).
type Issued struct{ Cert, Key []byte }

// Request makes a key, asks the API server of a login for a certificate of it and
// waits until it is signed or refused; named hears what the request is called. The
// error says what the signer said.
func Request(ctx context.Context, l Login, a Ask, named func(request string)) (Issued, error) {
	api, err := newRequester(l.REST)
	if err != nil {
		return Issued{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, fmt.Errorf("make a key: %w", err)
	}
	name, err := api.ask(ctx, a, key)
	if err != nil {
		return Issued{}, err
	}
	named(name)
	cert, err := api.issued(ctx, name)
	if err == nil {
		var out Issued
		if out, err = pair(cert, key); err == nil {
			return out, nil
		}
	}
	return Issued{}, fmt.Errorf("request %s: %w", name, err)
}

// pair proves that certificate and key belong together.
func pair(cert []byte, key *ecdsa.PrivateKey) (Issued, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Issued{}, fmt.Errorf("make a key: %w", err)
	}
	out := Issued{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
	if _, err := tls.X509KeyPair(out.Cert, out.Key); err != nil {
		return Issued{}, fmt.Errorf("certificate: %w", err)
	}
	return out, nil
}

// ask makes the request for a key and gives its name.
func (r requester) ask(ctx context.Context, a Ask, key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: a.Name, Organization: []string{a.Group}},
	}, key)
	if err != nil {
		return "", fmt.Errorf("certificate request: %w", err)
	}
	in := csr{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest", Spec: csrSpec{
		Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName:        a.Signer,
		ExpirationSeconds: int32(a.Duration / time.Second), //nolint:gosec // the flag is below ten years
		Usages:            []string{"digital signature", "client auth"},
	}}
	in.Metadata.GenerateName = "fairlead-"
	body, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("certificate request: %w", err)
	}
	raw, err := r.Post().AbsPath(requestPath).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("certificate request: %w", err)
	}
	var made csr
	if err := json.Unmarshal(raw, &made); err != nil {
		return "", fmt.Errorf("certificate request: %w", err)
	}
	return made.Metadata.Name, nil
}

// issued waits until the request is signed or refused. A watch that ends, as the
// server ends each after some minutes, or breaks, begins anew: the request stays.
func (r requester) issued(ctx context.Context, name string) (cert []byte, err error) {
	for {
		err := r.follow(ctx, requestPath, name, func(_ string, object []byte) (bool, error) {
			var now csr
			err := json.Unmarshal(object, &now)
			if err == nil {
				cert, err = now.Status.outcome()
			}
			return cert != nil, err
		})
		if cert != nil || err != nil {
			return cert, err
		}
		if !retry.Sleep(ctx, firstRequestPause) {
			return nil, fmt.Errorf("nobody approved and signed it: %w", ctx.Err())
		}
	}
}

// Heard takes a state of one object, as JSON, and what a watch calls it (ADDED,
// MODIFIED, DELETED); it says whether that was enough.
type Heard func(kind string, object []byte) (enough bool, err error)

// Follow tells of one object of the API server of a login: at once how it is, if it
// is there, and each change, until it was enough or the watch ends, as the server
// ends each after some minutes. An error is a refusal, or what heard said.
func Follow(ctx context.Context, l Login, path, name string, heard Heard) error {
	api, err := newRequester(l.REST)
	if err != nil {
		return err
	}
	return api.follow(ctx, path, name, heard)
}

func (r requester) follow(ctx context.Context, path, name string, heard Heard) error {
	// From what the server's cache has: it follows its database at once. To be shown the
	// newest first, a server over an etcd that tells no progress (before 3.4.31) waits for
	// a change of the same kind, and gives up.
	events, err := r.Get().AbsPath(path).Param("watch", "true").Param("resourceVersion", "0").Param("fieldSelector", "metadata.name="+name).Stream(ctx)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	if err != nil {
		return nil // a server that is away ends watches too
	}
	defer func() { _ = events.Close() }()
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	for lines := json.NewDecoder(events); lines.Decode(&e) == nil; {
		if e.Type == string(watch.Error) {
			var status metav1.Status
			if err := json.Unmarshal(e.Object, &status); err != nil {
				return err
			}
			return apierrors.FromObject(&status)
		}
		if enough, err := heard(e.Type, e.Object); enough || err != nil {
			return err
		}
	}
	return nil
}

// outcome is the certificate, nil while there is none.
func (s csrStatus) outcome() ([]byte, error) {
	for _, c := range s.Conditions {
		if (c.Type == "Denied" || c.Type == "Failed") && c.Status != "False" {
			return nil, fmt.Errorf("%s: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	if len(s.Certificate) == 0 {
		return nil, nil
	}
	return s.Certificate, nil
}
