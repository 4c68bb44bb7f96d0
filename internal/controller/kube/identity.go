package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/pki"
	"github.com/fairlead/fairlead/internal/core"
)

const (
	// longestIdle bounds the pause between two looks at the trusted certificates.
	longestIdle = 10 * time.Second
	// issueLimit is how long a request waits before another one is made.
	issueLimit = time.Minute
	askAgain   = 500 * time.Millisecond
)

// Credentials are a program's certificate and key, and whom it trusts; all PEM.
type Credentials struct {
	Key, Cert        []byte
	Central, Chassis string // bundles
}

// IdentityConfig says whose certificate an Identity is.
type IdentityConfig struct {
	// Namespace is Fairlead's, Name the certificate's common name.
	Namespace, Name string
	// Begin are credentials of an earlier life, which serve while the API server is
	// away.
	Begin Credentials
	// Changed hears new credentials before anybody has them. An error of its is
	// logged, and it is told again. nil: nobody wants to know.
	Changed func(Credentials) error
	Log     *slog.Logger
}

// Identity is the certificate by which a part of central, or a controller, is known
// to OVN's databases. Run asks for it and renews it.
type Identity struct {
	cfg    IdentityConfig
	client kubernetes.Interface
	nodes  metadata.ResourceInterface
	term   pki.Term

	mu   sync.Mutex
	now  Credentials
	pair *tls.Certificate // nil while there is none
	why  error            // the reason, then
}

// NewIdentity makes an Identity, which has what its Config begins with.
func NewIdentity(config *rest.Config, cfg IdentityConfig) (*Identity, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	i := &Identity{cfg: cfg, client: client, nodes: meta.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), why: fmt.Errorf("no certificate yet: %w", core.ErrUnavailable)}
	if pair, err := tls.X509KeyPair(cfg.Begin.Cert, cfg.Begin.Key); err == nil {
		i.now, i.pair = cfg.Begin, &pair
	}
	return i, nil
}

// Run keeps the certificate young, and what is trusted up to date, until ctx ends.
func (i *Identity) Run(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		err := i.once(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			i.cfg.Log.Warn("certificate not up to date: it is tried again", "name", i.cfg.Name, "err", err)
		}
		said = ""
		idle := askAgain
		if err != nil {
			said = err.Error()
			i.fail(err)
		} else {
			idle = i.idle()
		}
		select {
		case <-ctx.Done():
		case <-time.After(idle):
		}
	}
}

// idle is the pause until the next look: a quarter of the time at most for which a
// next CA is trusted before it issues.
func (i *Identity) idle() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	leaf := leafOf(i.pair)
	if leaf == nil {
		return askAgain
	}
	return min(longestIdle, max(0, time.Until(leaf.NotAfter))/40+time.Millisecond)
}

func (i *Identity) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.why = fmt.Errorf("no certificate yet: %w: %w", core.ErrUnavailable, err)
}

// once does what is due.
func (i *Identity) once(ctx context.Context) error {
	central, chassis, err := i.bundles(ctx)
	if err != nil {
		return err
	}
	i.mu.Lock()
	next, leaf := i.now, leafOf(i.pair)
	i.mu.Unlock()
	was := next
	next.Central, next.Chassis = central, chassis
	if leaf == nil || i.term.Due(leaf) || pki.Trusts(next.Central, leaf, nil, x509.ExtKeyUsageServerAuth) != nil {
		if next.Key, next.Cert, err = i.ask(ctx); err != nil {
			return err
		}
	} else if was.Central == next.Central && was.Chassis == next.Chassis {
		return nil
	}
	pair, err := tls.X509KeyPair(next.Cert, next.Key)
	if err != nil {
		return fmt.Errorf("the certificate that was issued: %w", err)
	}
	if i.cfg.Changed != nil {
		if err := i.cfg.Changed(next); err != nil {
			return err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now, i.pair = next, &pair
	return nil
}

// bundles are those who are to be trusted.
func (i *Identity) bundles(ctx context.Context) (central, chassis string, err error) {
	at := "config map " + i.cfg.Namespace + "/" + fairlead.CAName
	m, err := i.client.CoreV1().ConfigMaps(i.cfg.Namespace).Get(ctx, fairlead.CAName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", fmt.Errorf("%s is not there: a fairlead-controller makes it", at)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", at, err)
	}
	central, chassis = m.Data[fairlead.BundleCentral], m.Data[fairlead.BundleChassis]
	if central == "" || chassis == "" { // the chart makes it so
		return "", "", fmt.Errorf("%s is empty: a fairlead-controller fills it", at)
	}
	return central, chassis, nil
}

func leafOf(pair *tls.Certificate) *x509.Certificate {
	if pair == nil {
		return nil
	}
	return pair.Leaf
}

// ask makes a key and gets the certificate of it.
func (i *Identity) ask(ctx context.Context) (key, cert []byte, err error) {
	ctx, stop := context.WithTimeout(ctx, issueLimit)
	defer stop()
	key, request, err := pki.NewRequest(i.cfg.Name, fairlead.OrganizationCentral)
	if err != nil {
		return nil, nil, err
	}
	all := i.client.CertificatesV1().CertificateSigningRequests()
	csr, err := all.Create(ctx, &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "fairlead-central-"},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: request, SignerName: fairlead.SignerCentral,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth, certificates.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("certificate request: %w", err)
	}
	for {
		for _, c := range csr.Status.Conditions {
			if c.Type == certificates.CertificateDenied || c.Type == certificates.CertificateFailed {
				return nil, nil, fmt.Errorf("certificate request %s: %s", csr.Name, c.Message)
			}
		}
		if len(csr.Status.Certificate) > 0 {
			return key, csr.Status.Certificate, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("certificate request %s is not signed: no fairlead-controller runs", csr.Name)
		case <-time.After(askAgain):
		}
		if csr, err = all.Get(ctx, csr.Name, metav1.GetOptions{}); err != nil {
			return nil, nil, fmt.Errorf("certificate request: %w", err)
		}
	}
}

// Chassis are the names under which Nodes are chassis: their own, and those that they
// are annotated with.
func (i *Identity) Chassis(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for page := (metav1.ListOptions{Limit: 500}); ; {
		list, err := i.nodes.List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list Nodes: %w", err)
		}
		for _, n := range list.Items {
			out[n.Name] = true
			if name := n.Annotations[v1.AnnChassis]; name != "" {
				out[name] = true
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return out, nil
		}
	}
}

// Expiry is when the certificate is over, 0 in Unix' seconds for none.
func (i *Identity) Expiry() float64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if leaf := leafOf(i.pair); leaf != nil {
		return float64(leaf.NotAfter.Unix())
	}
	return 0
}

// Ready is nil while there is a certificate that is not over.
func (i *Identity) Ready() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	leaf := leafOf(i.pair)
	switch {
	case leaf == nil:
		return i.why
	case time.Now().After(leaf.NotAfter):
		return fmt.Errorf("the certificate is over since %s: %w", leaf.NotAfter.Format(time.RFC3339), i.why)
	}
	return nil
}

// TLS is how a server of central is reached as this Identity.
func (i *Identity) TLS() *tls.Config {
	return pki.Client(
		func() (*tls.Certificate, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.pair == nil {
				return nil, i.why
			}
			return i.pair, nil
		},
		func() (string, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.pair == nil {
				return "", i.why
			}
			return i.now.Central, nil
		})
}
