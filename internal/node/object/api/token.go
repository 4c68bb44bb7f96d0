package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// request is what makes tokens different.
type request struct {
	pod      types.UID
	account  string
	audience string
	lifetime time.Duration
}

// issued is a token and when it was.
type issued struct {
	text            string
	expires, renews time.Time
}

// most is how long a token is used, however long it is valid (kubelet's rule).
const most = 24 * time.Hour

// Token is bound to the pod: it is worth nothing once that is gone. One that is
// known is given until a fifth of its life is left; and until its end while the
// server cannot be reached.
func (s *Store) Token(ctx context.Context, pod *v1.Pod, audience string, lifetime time.Duration) (text string, expires time.Time, err error) {
	r := request{pod.UID, cmp.Or(pod.Spec.ServiceAccountName, "default"), audience, lifetime}
	now := time.Now()
	s.mu.Lock()
	has := s.tokens[r]
	s.mu.Unlock()
	if has.renews.After(now) {
		return has.text, has.expires, nil
	}
	fresh, err := s.issue(ctx, pod, r)
	switch {
	case err == nil:
		s.mu.Lock()
		s.tokens[r] = fresh
		s.mu.Unlock()
		return fresh.text, fresh.expires, nil
	case has.expires.After(now):
		s.cfg.Log.Warn("a token could not be renewed; the one there is stays", "namespace", pod.Namespace, "pod", pod.Name, "err", err)
		return has.text, has.expires, nil
	}
	return "", time.Time{}, err
}

func (s *Store) issue(ctx context.Context, pod *v1.Pod, r request) (issued, error) {
	seconds := int64(r.lifetime.Seconds())
	ask := &authentication.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: authentication.SchemeGroupVersion.String(), Kind: "TokenRequest"},
		Spec: authentication.TokenRequestSpec{
			ExpirationSeconds: &seconds,
			BoundObjectRef:    &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}
	if r.audience != "" {
		ask.Spec.Audiences = []string{r.audience}
	}
	got := &authentication.TokenRequest{}
	err := s.client.Post().Namespace(pod.Namespace).Resource("serviceaccounts").Name(r.account).SubResource("token").Body(ask).Do(ctx).Into(got)
	if err != nil {
		return issued{}, fmt.Errorf("ask for a token: %w", err)
	}
	now, end := time.Now(), got.Status.ExpirationTimestamp.Time
	return issued{text: got.Status.Token, expires: end, renews: now.Add(min(most, end.Sub(now)*4/5))}, nil
}

// forget drops a pod's tokens. s.mu is held.
func (s *Store) forget(pod types.UID) {
	for r := range s.tokens {
		if r.pod == pod {
			delete(s.tokens, r)
		}
	}
}
