package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/object/api"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// patience bounds what a test waits for; nothing is measured by it.
const patience = time.Minute

// start follows a store until the test ends.
func start(t *testing.T, cfg api.Config) (*api.Store, <-chan object.Ref) {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	s, err := api.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	told, done := make(chan object.Ref, 1000), make(chan error, 1)
	go func() { done <- s.Follow(ctx, func(r object.Ref) { told <- r }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return s, told
}

// until waits until something is told and good.
func until(t *testing.T, told <-chan object.Ref, good func() bool) {
	t.Helper()
	for end := time.After(patience); !good(); {
		select {
		case <-told:
		case <-end:
			t.Fatal("nothing more was told")
		}
	}
}

func TestObjectsThatPodsName(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: %s}, data: {a: one}}", ns))
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: %s}, data: {a: one}}", ns))
	s, told := start(t, api.Config{Server: c.Admin()})
	mine := object.Ref{Kind: object.ConfigMap, Namespace: ns, Name: "m"}
	login := object.Ref{Kind: object.Secret, Namespace: ns, Name: "login"}
	_, err := s.ConfigMap(ns, "m")
	require.ErrorIs(t, err, object.ErrNotHeld)
	s.Hold("pod", []object.Ref{mine, login})
	is := func(want string) func() bool {
		return func() bool {
			m, err := s.ConfigMap(ns, "m")
			return err == nil && m.Data["a"] == want
		}
	}
	until(t, told, is("one"))
	until(t, told, func() bool {
		_, err := s.Secret(ns, "login")
		return errors.Is(err, object.ErrMissing) && strings.Contains(err.Error(), "the API server has none")
	})
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: login, namespace: %s}, stringData: {user: alice}}", ns))
	until(t, told, func() bool {
		got, err := s.Secret(ns, "login")
		return err == nil && string(got.Data["user"]) == "alice"
	})
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: %s}, data: {a: two}}", ns))
	until(t, told, is("two"))
	_, err = s.ConfigMap(ns, "other")
	require.ErrorIs(t, err, object.ErrNotHeld, "nobody names it")

	// Two pods name it; it stays as long as one does.
	s.Hold("second", []object.Ref{mine})
	s.Hold("pod", nil)
	require.True(t, is("two")())
	_, err = s.Secret(ns, "login")
	require.ErrorIs(t, err, object.ErrNotHeld)
	c.Delete(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: %s}}", ns))
	until(t, told, func() bool {
		_, err := s.ConfigMap(ns, "m")
		return errors.Is(err, object.ErrMissing)
	})
	s.Hold("second", nil)
	_, err = s.ConfigMap(ns, "m")
	require.ErrorIs(t, err, object.ErrNotHeld)
}

// TestServerAway: what is known stays, what is not is not taken for missing.
func TestServerAway(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	ns := c.Namespace()
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: %s}, data: {a: one}}", ns))
	s, told := start(t, api.Config{Server: c.Admin()})
	s.Hold("pod", []object.Ref{{Kind: object.ConfigMap, Namespace: ns, Name: "m"}})
	until(t, told, func() bool {
		_, err := s.ConfigMap(ns, "m")
		return err == nil
	})
	c.Stop()
	s.Hold("second", []object.Ref{{Kind: object.Secret, Namespace: ns, Name: "late"}})
	until(t, told, func() bool {
		_, err := s.Secret(ns, "late")
		return errors.Is(err, object.ErrUnknown) && strings.Contains(err.Error(), "refused")
	})
	m, err := s.ConfigMap(ns, "m")
	require.NoError(t, err)
	require.Equal(t, "one", m.Data["a"])
	c.Restart()
	until(t, told, func() bool {
		_, err := s.Secret(ns, "late")
		return errors.Is(err, object.ErrMissing)
	})
}

// TestTokens: bound to the pod, kept as long as they are good.
func TestTokens(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: %s}}", ns))
	c.Apply(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: %s}, spec: {serviceAccountName: robot, automountServiceAccountToken: false, nodeName: node1, containers: [{name: c, image: i}]}}", ns))
	pod, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	s, _ := start(t, api.Config{Server: c.Admin()})
	token := func(p *v1.Pod, audience string) string {
		text, expires, err := s.Token(t.Context(), p, audience, time.Hour)
		require.NoError(t, err)
		require.True(t, expires.After(time.Now()))
		require.Len(t, strings.Split(text, "."), 3)
		return text
	}
	first := token(pod, "")
	require.Equal(t, first, token(pod, ""))
	require.NotEqual(t, first, token(pod, "vault"))
	s.Hold(pod.UID, []object.Ref{})
	require.Equal(t, first, token(pod, ""), "a pod that names nothing is still there")
	s.Hold(pod.UID, nil)
	require.NotEqual(t, first, token(pod, ""))
	other := pod.DeepCopy()
	other.UID = "another"
	_, _, err = s.Token(t.Context(), other, "", time.Hour)
	require.ErrorContains(t, err, "ask for a token")
}
