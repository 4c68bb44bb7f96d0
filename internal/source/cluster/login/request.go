package login

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
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

// ask makes the request of a node for a key and gives its name.
func (r requester) ask(ctx context.Context, node string, key *ecdsa.PrivateKey, duration time.Duration) (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: certUser + node, Organization: []string{certGroup}},
	}, key)
	if err != nil {
		return "", fmt.Errorf("certificate request: %w", err)
	}
	in := csr{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest", Spec: csrSpec{
		Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName:        certSigner,
		ExpirationSeconds: int32(duration / time.Second), //nolint:gosec // the flag is below ten years
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
func (r requester) issued(ctx context.Context, name string) ([]byte, error) {
	for {
		events, err := r.Get().AbsPath(requestPath).Param("watch", "true").Param("fieldSelector", "metadata.name="+name).Stream(ctx)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return nil, err
		}
		if err == nil {
			cert, err := decision(events)
			_ = events.Close()
			if cert != nil || err != nil {
				return cert, err
			}
		}
		if !pause(ctx, firstRequestPause) {
			return nil, fmt.Errorf("nobody approved and signed it: %w", ctx.Err())
		}
	}
}

// decision reads a watch until the request is signed or refused, or until the
// watch ends, which is neither.
func decision(events io.Reader) ([]byte, error) {
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	for lines := json.NewDecoder(events); lines.Decode(&e) == nil; {
		if e.Type == string(watch.Error) {
			var status metav1.Status
			if err := json.Unmarshal(e.Object, &status); err != nil {
				return nil, err
			}
			return nil, apierrors.FromObject(&status)
		}
		var now csr
		if err := json.Unmarshal(e.Object, &now); err != nil {
			return nil, err
		}
		if cert, err := now.Status.outcome(); cert != nil || err != nil {
			return cert, err
		}
	}
	return nil, nil
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
