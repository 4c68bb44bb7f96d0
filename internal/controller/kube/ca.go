package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/pki"
)

// longestLook bounds the pause between two looks at the CAs.
const longestLook = 30 * time.Second

// ringNames are the CAs: the signer of each, and the name of its keys in Secret and
// ConfigMap.
var ringNames = map[string]string{fairlead.SignerCentral: "central", fairlead.SignerChassis: "chassis"}

// Authority keeps the CAs of central and chassis, and signs what is asked of both.
// One of several controllers does it, the holder of Lease CAName, whether or not it
// reaches a database: central gets its own certificates here.
type Authority struct {
	namespace string
	life      time.Duration
	client    kubernetes.Interface
	log       *slog.Logger
	said      string // the last error that was logged
}

// NewAuthority makes an Authority of a namespace whose certificates are good for
// life.
func NewAuthority(config *rest.Config, namespace string, life time.Duration, log *slog.Logger) (*Authority, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &Authority{namespace: namespace, life: life, client: client, log: log}, nil
}

// Run keeps and signs until ctx ends. Nobody else may do so at that time; one that
// does is refused by the version of the Secret.
func (a *Authority) Run(ctx context.Context) {
	asked := make(chan struct{}, 1)
	var requests []cache.Store
	for signer := range ringNames {
		informer := cache.NewSharedInformer(cache.NewListWatchFromClient(a.client.CertificatesV1().RESTClient(), "certificatesigningrequests", "",
			fields.OneTermEqualSelector("spec.signerName", signer)), &certificates.CertificateSigningRequest{}, 0)
		tell := func(any) {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }}); err != nil {
			a.log.Error("certificate requests are not followed", "signer", signer, "err", err)
			return
		}
		go informer.RunWithContext(ctx)
		requests = append(requests, informer.GetStore())
	}
	look := time.NewTicker(min(longestLook, a.life/20))
	defer look.Stop()
	for {
		a.tell(a.once(ctx, requests))
		select {
		case <-ctx.Done():
			return
		case <-asked:
		case <-look.C:
		}
	}
}

// tell logs an error when it is another than the last.
func (a *Authority) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.said && err != nil {
		a.log.Error("certificates are not kept as they should be: it is tried again", "err", err)
	}
	a.said = text
}

// once does what is due.
func (a *Authority) once(ctx context.Context, requests []cache.Store) error {
	rings, err := a.keep(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, store := range requests {
		for _, o := range store.List() {
			if csr, ok := o.(*certificates.CertificateSigningRequest); ok {
				errs = append(errs, a.answer(ctx, rings, csr))
			}
		}
	}
	return errors.Join(errs...)
}

// keep takes the CAs' next step. What it gives issues certificates that everybody
// trusts who reads the ConfigMap.
func (a *Authority) keep(ctx context.Context) (map[string]pki.Ring, error) {
	secret, err := a.client.CoreV1().Secrets(a.namespace).Get(ctx, fairlead.CAName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = a.client.CoreV1().Secrets(a.namespace).Create(ctx, &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: fairlead.CAName}}, metav1.CreateOptions{})
		err = missing(err)
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", a.namespace, fairlead.CAName, err)
	}
	bundles, err := a.published(ctx)
	if err != nil {
		return nil, err
	}
	if len(secret.Data) == 0 {
		if secret, err = a.found(ctx, secret, bundles); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", a.namespace, fairlead.CAName, err)
		}
	}
	rings, changed, err := a.step(secret, bundles)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w; restore it, or delete it to have new CAs", a.namespace, fairlead.CAName, err)
	}
	if changed {
		if _, err := a.client.CoreV1().Secrets(a.namespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", a.namespace, fairlead.CAName, err)
		}
	}
	return rings, a.publish(ctx, bundles, rings)
}

// step changes a Secret as is due.
func (a *Authority) step(secret *core.Secret, bundles *core.ConfigMap) (map[string]pki.Ring, bool, error) {
	now, changed := time.Now(), false
	rings := map[string]pki.Ring{}
	for signer, name := range ringNames {
		was, err := pki.ReadRing(secret.Data[name])
		if err != nil {
			return nil, false, fmt.Errorf("key %s: %w", name, err)
		}
		published := bundles != nil && bundles.Data[name+".crt"] == was.Bundle()
		replace := secret.Annotations[fairlead.AnnReplaceCA] == name
		ring, err := was.Step(name, now, a.life, published, replace)
		if err != nil {
			return nil, false, fmt.Errorf("key %s: %w", name, err)
		}
		if replace {
			delete(secret.Annotations, fairlead.AnnReplaceCA)
			changed = true
		}
		text, err := ring.Write()
		if err != nil {
			return nil, false, err
		}
		if string(text) != string(secret.Data[name]) {
			a.log.Info("a CA's next step", "ca", name, "next", ring.Next != nil, "former", len(ring.Former))
			secret.Data[name] = text
			changed = true
		}
		rings[signer] = ring
	}
	return rings, changed, nil
}

// missing is why what the chart brings is not there and cannot be made.
func missing(err error) error {
	if apierrors.IsForbidden(err) {
		return errors.New("it is not there, and the controller may not make it: apply Fairlead's manifests again")
	}
	return err
}

// found fills an empty Secret. Certificates of earlier CAs, whose Secret is lost,
// stay good until they are over.
func (a *Authority) found(ctx context.Context, secret *core.Secret, bundles *core.ConfigMap) (*core.Secret, error) {
	secret = secret.DeepCopy()
	secret.Data = map[string][]byte{}
	now := time.Now()
	for _, name := range ringNames {
		ring, err := pki.NewRing(name, now)
		if err != nil {
			return nil, err
		}
		if bundles != nil {
			ring = ring.Adopt(bundles.Data[name+".crt"], now, a.life)
		}
		if secret.Data[name], err = ring.Write(); err != nil {
			return nil, err
		}
	}
	a.log.Info("CAs of central and chassis are made", "namespace", a.namespace)
	return a.client.CoreV1().Secrets(a.namespace).Update(ctx, secret, metav1.UpdateOptions{})
}

// published is the ConfigMap, nil for none.
func (a *Authority) published(ctx context.Context) (*core.ConfigMap, error) {
	m, err := a.client.CoreV1().ConfigMaps(a.namespace).Get(ctx, fairlead.CAName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("config map %s/%s: %w", a.namespace, fairlead.CAName, err)
	}
	return m, nil
}

// publish makes the ConfigMap say whom to trust.
func (a *Authority) publish(ctx context.Context, was *core.ConfigMap, rings map[string]pki.Ring) error {
	want := map[string]string{}
	same := was != nil
	for signer, name := range ringNames {
		want[name+".crt"] = rings[signer].Bundle()
		same = same && was.Data[name+".crt"] == want[name+".crt"]
	}
	if same {
		return nil
	}
	maps := a.client.CoreV1().ConfigMaps(a.namespace)
	var err error
	if was == nil {
		_, err = maps.Create(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fairlead.CAName}, Data: want}, metav1.CreateOptions{})
		err = missing(err)
	} else {
		now := was.DeepCopy()
		now.Data = want
		_, err = maps.Update(ctx, now, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("config map %s/%s: %w", a.namespace, fairlead.CAName, err)
	}
	return nil
}

// answer signs a request, or says why not.
func (a *Authority) answer(ctx context.Context, rings map[string]pki.Ring, csr *certificates.CertificateSigningRequest) error {
	if len(csr.Status.Certificate) > 0 || has(csr, certificates.CertificateDenied) || has(csr, certificates.CertificateFailed) {
		return nil
	}
	req := pki.Request{
		Signer: csr.Spec.SignerName, PEM: csr.Spec.Request, User: csr.Spec.Username, Node: csr.Spec.Extra[fairlead.ExtraNodeName],
	}
	for _, u := range csr.Spec.Usages {
		req.Usages = append(req.Usages, string(u))
	}
	if s := csr.Spec.ExpirationSeconds; s != nil {
		req.Life = time.Duration(*s) * time.Second
	}
	asked, err := req.Check(a.namespace)
	if err != nil {
		return a.refuse(ctx, csr, err)
	}
	if !has(csr, certificates.CertificateApproved) {
		if csr, err = a.decide(ctx, csr, certificates.CertificateApproved, "the requester is who the certificate names"); err != nil {
			return err
		}
	}
	cert, err := rings[req.Signer].Sign(req, asked, time.Now(), a.life)
	if err != nil {
		return err
	}
	now := csr.DeepCopy()
	now.Status.Certificate = cert
	_, err = a.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return outrun(err)
}

// refuse says why a request is not signed. One that somebody has approved cannot
// be denied any more: it has failed.
func (a *Authority) refuse(ctx context.Context, csr *certificates.CertificateSigningRequest, why error) error {
	a.log.Warn("a certificate is not signed", "request", csr.Name, "user", csr.Spec.Username, "err", why)
	if !has(csr, certificates.CertificateApproved) {
		_, err := a.decide(ctx, csr, certificates.CertificateDenied, why.Error())
		return err
	}
	now := csr.DeepCopy()
	now.Status.Conditions = append(now.Status.Conditions, condition(certificates.CertificateFailed, why.Error()))
	_, err := a.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return outrun(err)
}

func (a *Authority) decide(ctx context.Context, csr *certificates.CertificateSigningRequest, kind certificates.RequestConditionType, why string) (*certificates.CertificateSigningRequest, error) {
	now := csr.DeepCopy()
	now.Status.Conditions = append(now.Status.Conditions, condition(kind, why))
	out, err := a.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, now, metav1.UpdateOptions{})
	if err != nil {
		return csr, fmt.Errorf("certificate request %s: %w", csr.Name, err)
	}
	return out, nil
}

func condition(kind certificates.RequestConditionType, why string) certificates.CertificateSigningRequestCondition {
	return certificates.CertificateSigningRequestCondition{Type: kind, Status: core.ConditionTrue, Reason: "Fairlead" + string(kind), Message: why}
}

func has(csr *certificates.CertificateSigningRequest, kind certificates.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificates.CertificateSigningRequestCondition) bool { return c.Type == kind })
}

// outrun passes over what the watch tells soon: the request has changed, or is gone.
func outrun(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
