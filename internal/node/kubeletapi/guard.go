package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
)

// everybody is the group of all who are known.
const everybody = "system:authenticated"

// errUnknown is that a request says nothing, or nothing true, about who asks.
var errUnknown = errors.New("nobody that is known")

// reviews is what an API server says about people. It may be asked at any time,
// by many; an error is that it has not answered.
type reviews interface {
	// who is behind a token; errUnknown when nobody is.
	who(ctx context.Context, token string) (authentication.UserInfo, error)
	may(ctx context.Context, r authorization.SubjectAccessReviewSpec) (bool, error)
}

// guard lets through who may.
type guard struct {
	node    string
	clients *authorities // nil: certificates are not believed
	review  reviews
	log     *slog.Logger
}

func (g *guard) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.who(r)
		if err != nil && !errors.Is(err, errUnknown) {
			g.log.Warn("request refused: the API server did not review its token", "from", r.RemoteAddr, "err", err)
			http.Error(w, "Authentication error", http.StatusInternalServerError)
			return
		}
		if err != nil {
			g.log.Debug("request refused: it proves no user that the API server knows", "from", r.RemoteAddr, "path", r.URL.Path, "err", err)
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		switch allowed, right, err := g.may(r, &user); {
		case err != nil:
			g.log.Warn("request refused: the API server did not review the user's rights", "user", user.Username, "err", err)
			http.Error(w, "Authorization error: "+right, http.StatusInternalServerError)
		case !allowed:
			http.Error(w, "Forbidden "+right, http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// who asks: by a certificate, else by a token.
func (g *guard) who(r *http.Request) (authentication.UserInfo, error) {
	refused := errUnknown
	if g.clients != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		err := g.clients.verify(r.TLS.PeerCertificates)
		if subject := r.TLS.PeerCertificates[0].Subject; err == nil && subject.CommonName != "" {
			return authentication.UserInfo{
				Username: subject.CommonName, Groups: append(slices.Clone(subject.Organization), everybody),
			}, nil
		}
		refused = errors.Join(errUnknown, err)
	}
	kind, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(kind, "bearer") || token == "" {
		return authentication.UserInfo{}, refused
	}
	user, err := g.review.who(r.Context(), token)
	if err == nil && !slices.Contains(user.Groups, everybody) {
		user.Groups = append(slices.Clone(user.Groups), everybody)
	}
	return user, err
}

// may tells whether a user may do what a request asks for: one of the rights
// that it stands for is enough. In words, for who asks, it is what would be needed.
func (g *guard) may(r *http.Request, user *authentication.UserInfo) (allowed bool, right string, err error) {
	verb, subresources := needs(r)
	right = fmt.Sprintf("(user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Username, verb, subresources)
	extra := map[string]authorization.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorization.ExtraValue(v)
	}
	for _, sub := range subresources {
		ok, err := g.review.may(r.Context(), authorization.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorization.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: "nodes", Subresource: sub, Name: g.node,
			},
		})
		if err != nil || ok {
			return ok, right, err
		}
	}
	return false, right, nil
}

// streams are paths below which something is done in a pod.
var streams = []string{"/exec/", "/attach/", "/portForward/"}

// needs is the verb, and the subresources of the node of which a right to one is
// enough: kubelet's, narrow ones first (KEP-2862). Unlike there, a stream into a
// pod takes the verb create also where it begins with GET, as a WebSocket does:
// who may only read runs no commands.
func needs(r *http.Request) (verb string, subresources []string) {
	verb = map[string]string{
		http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[r.Method]
	// No right is for a verb without a name but that to all of them.
	if slices.ContainsFunc(streams, func(s string) bool { return strings.HasPrefix(r.URL.Path, s) }) {
		verb = "create"
	}
	switch r.URL.Path {
	case "/pods":
		subresources = append(subresources, "pods")
	case "/healthz":
		subresources = append(subresources, "healthz")
	}
	return verb, append(subresources, "proxy")
}
