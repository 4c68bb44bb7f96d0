// Package pullsecret finds the credentials with which an image may be pulled: those
// of a pod's pull secrets, then those of the node's own file. It asks no registry.
package pullsecret

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/object"
)

// entry is what one registry is shown (Docker's config.json; Kubernetes' images
// documentation).
type entry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// Keyring is what a pull may show, in order.
type Keyring struct{ keys []key }

type key struct {
	host, path string // the path is "", or begins with a slash
	auth       *cri.AuthConfig
}

// Of reads a pod's pull secrets, and the first of the node's files that is there.
// What cannot be read is left out, and told in the errors, one for each; a secret of
// which nothing is known yet wraps object.ErrUnknown.
func Of(pod *v1.Pod, objects object.Objects, files ...string) (Keyring, []error) {
	k, errs := Keyring{}, []error(nil)
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := objects.Secret(pod.Namespace, ref.Name)
		if err == nil {
			err = k.secret(s)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s: %w", ref.Name, err))
		}
	}
	for _, file := range files {
		text, err := read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = k.config(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credentials of %s: %w", file, err))
		}
		break
	}
	return k, errs
}

// most is how large a file of credentials may be, in bytes.
const most = 1 << 20

func read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("it is no file of at most %d bytes", most)
	}
	return os.ReadFile(file)
}

func (k *Keyring) secret(s *v1.Secret) error {
	if text, ok := s.Data[v1.DockerConfigJsonKey]; ok {
		return k.config(text)
	}
	text, ok := s.Data[v1.DockerConfigKey]
	if !ok {
		return fmt.Errorf("it has neither %s nor %s", v1.DockerConfigJsonKey, v1.DockerConfigKey)
	}
	var all map[string]entry
	if json.Unmarshal(text, &all) != nil { // its error might show what is secret
		return fmt.Errorf("its %s is no JSON of registries", v1.DockerConfigKey)
	}
	return k.add(all)
}

func (k *Keyring) config(text []byte) error {
	var c struct {
		Auths map[string]entry `json:"auths"`
	}
	if json.Unmarshal(text, &c) != nil {
		return errors.New("it is no JSON with auths")
	}
	return k.add(c.Auths)
}

// add puts more specific places before others; between sources the first counts.
func (k *Keyring) add(all map[string]entry) error {
	var keys []key
	var errs []error
	for place, e := range all {
		auth, err := e.auth()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place, err))
			continue
		}
		host, path := split(place)
		keys = append(keys, key{host, path, auth})
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(strings.Count(a.host, "*"), strings.Count(b.host, "*")),
			cmp.Compare(a.host, b.host), cmp.Compare(a.path, b.path))
	})
	k.keys = append(k.keys, keys...)
	return errors.Join(errs...)
}

func (e entry) auth() (*cri.AuthConfig, error) {
	out := &cri.AuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken}
	if e.Auth != "" && out.Username == "" {
		both, err := base64.StdEncoding.DecodeString(strings.TrimSpace(e.Auth))
		user, password, ok := strings.Cut(strings.TrimRight(string(both), "\x00\n"), ":")
		if err != nil || !ok {
			return nil, errors.New(`auth is not base64 of "user:password"`)
		}
		out.Username, out.Password = user, password
	}
	return out, nil
}

// split reads a registry's place: a host, maybe with a port, a path and a scheme.
func split(place string) (host, path string) {
	place = strings.TrimPrefix(strings.TrimPrefix(place, "https://"), "http://")
	host, path, _ = strings.Cut(place, "/")
	path = strings.Trim(path, "/")
	if path == "v1" || path == "v2" { // of the registry's API
		path = ""
	}
	if path != "" {
		path = "/" + path
	}
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	return host, path
}

// For lists what may be shown for an image, the most specific first; none is a pull
// that shows nothing.
func (k Keyring) For(image string) []*cri.AuthConfig {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil // the runtime says what is wrong
	}
	var out []*cri.AuthConfig
	for _, key := range k.keys {
		below := key.path == "" || strings.HasPrefix("/"+reference.Path(named)+"/", key.path+"/")
		if below && sameHost(key.host, reference.Domain(named)) {
			out = append(out, key.auth)
		}
	}
	return out
}

// sameHost compares hosts by their parts, of which the pattern's may be globs, and
// ports.
func sameHost(pattern, host string) bool {
	wants, has := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(wants) != len(has) {
		return false
	}
	for i, w := range wants {
		if ok, err := path.Match(w, has[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
