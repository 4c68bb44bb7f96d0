package kubeletapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/node/apiserver"
)

// How long an answer of the API server is good for. What it allowed ends that
// much later than it should; kubelet's are 2 and 5 minutes, and 30 s.
const (
	yesLife = time.Minute
	noLife  = 10 * time.Second
)

// Bounds of questions: their number, and how long one may take.
const (
	questionsPerSecond = 50
	burst              = 100
	answerLimit        = 10 * time.Second
)

// identity is what is known of a token.
type identity struct {
	user  authentication.UserInfo
	known bool
}

// reviewer asks an API server, and remembers its answers for a little while.
type reviewer struct {
	tokens, rights rest.Interface
	users          cache[identity]
	allowed        cache[bool]
}

func newReviewer(base *rest.Config) (*reviewer, error) {
	cfg := rest.CopyConfig(base)
	cfg.QPS, cfg.Burst, cfg.Timeout = questionsPerSecond, burst, answerLimit
	cfg.ContentType = runtime.ContentTypeJSON
	c, err := apiserver.New(cfg, authentication.AddToScheme, authorization.AddToScheme)
	if err != nil {
		return nil, err
	}
	r := &reviewer{}
	if r.tokens, err = c.Group(authentication.SchemeGroupVersion); err != nil {
		return nil, err
	}
	r.rights, err = c.Group(authorization.SchemeGroupVersion)
	return r, err
}

func (r *reviewer) who(ctx context.Context, token string) (authentication.UserInfo, error) {
	key := sha256.Sum256([]byte(token)) // tokens themselves are not kept
	id, had := r.users.get(key)
	if !had {
		out := &authentication.TokenReview{}
		ask := &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}
		if err := r.tokens.Post().Resource("tokenreviews").Body(ask).Do(ctx).Into(out); err != nil {
			return authentication.UserInfo{}, fmt.Errorf("review of a token: %w", err)
		}
		id = identity{out.Status.User, out.Status.Authenticated && out.Status.User.Username != ""}
		r.users.put(key, id, life(id.known))
	}
	if !id.known {
		return authentication.UserInfo{}, errUnknown
	}
	return id.user, nil
}

func (r *reviewer) may(ctx context.Context, spec authorization.SubjectAccessReviewSpec) (bool, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("review of a right: %w", err)
	}
	key := sha256.Sum256(text)
	if ok, had := r.allowed.get(key); had {
		return ok, nil
	}
	out := &authorization.SubjectAccessReview{}
	if err := r.rights.Post().Resource("subjectaccessreviews").Body(&authorization.SubjectAccessReview{Spec: spec}).Do(ctx).Into(out); err != nil {
		return false, fmt.Errorf("review of a right: %w", err)
	}
	ok := out.Status.Allowed && !out.Status.Denied
	r.allowed.put(key, ok, life(ok))
	return ok, nil
}

func life(yes bool) time.Duration {
	if yes {
		return yesLife
	}
	return noLife
}
