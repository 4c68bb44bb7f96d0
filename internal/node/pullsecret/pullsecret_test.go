package pullsecret

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/object"
)

type secrets map[string]*v1.Secret

func (secrets) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return object.None{}.ConfigMap(namespace, name)
}

func (s secrets) Secret(namespace, name string) (*v1.Secret, error) {
	if o := s[namespace+"/"+name]; o != nil {
		return o, nil
	}
	return object.None{}.Secret(namespace, name)
}

// TestWhatIsShown: a registry is shown what is meant for it, the most specific
// first, secrets before the node's file, and nothing that is meant for another.
func TestWhatIsShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"auths": {"reg.example:5000": {"auth": "bm9kZTpub2Rl"}, "https://index.docker.io/v1/": {"username": "hub", "password": "p"}}}`), 0o600))
	of := func(key, text string) *v1.Secret { return &v1.Secret{Data: map[string][]byte{key: []byte(text)}} }
	objects := secrets{
		"default/new": of(".dockerconfigjson", `{"auths": {"reg.example:5000": {"username": "anna", "password": "a"},
			"reg.example:5000/team": {"username": "team", "password": "t"}, "*.example": {"identitytoken": "tok"}}}`),
		"default/old": of(".dockercfg", `{"http://old.example/v2/": {"auth": "b2xkOm8="}}`),
		"default/bad": of(".dockerconfigjson", `{"auths": {"x": {"auth": "secret!"}}}`),
		"default/not": of("x", "y"),
	}
	pod := &v1.Pod{}
	pod.Namespace = "default"
	for _, name := range []string{"new", "old", "bad", "not", "none"} {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
	}
	k, errs := Of(pod, objects, filepath.Join(t.TempDir(), "absent"), file)
	require.Len(t, errs, 3)
	require.ErrorContains(t, errs[0], `pull secret bad: x: auth is not base64 of "user:password"`)
	require.ErrorContains(t, errs[1], "pull secret not: it has neither .dockerconfigjson nor .dockercfg")
	require.ErrorIs(t, errs[2], object.ErrMissing)
	for image, want := range map[string][]string{
		"reg.example:5000/app:1":     {"anna", "node"},
		"reg.example:5000/team/app":  {"team", "anna", "node"},
		"reg.example:5000/teams/app": {"anna", "node"},
		"reg.example/app":            {"tok"},
		"a.reg.example/app":          nil,
		"old.example/app@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": {"tok", "old"},
		"busybox":                      {"hub"},
		"example/busybox":              {"hub"},
		"evil.example.org/reg.example": nil,
		"UPPER":                        nil,
	} {
		var got []string
		for _, a := range k.For(image) {
			got = append(got, a.Username+a.IdentityToken)
		}
		require.Equal(t, want, got, image)
	}
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	_, errs = Of(&v1.Pod{}, objects, file)
	require.Len(t, errs, 1)
}
