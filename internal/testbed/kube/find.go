package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/fairlead/fairlead/internal/testbed"
)

// version finds the one place where the version of Kubernetes is written.
var version = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)$`)

// Programs is the folder of what `make kube` builds: $FAIRLEAD_KUBE, else the
// checkout's cache.
func Programs() (string, error) {
	if dir := os.Getenv("FAIRLEAD_KUBE"); dir != "" {
		return dir, nil
	}
	return cache()
}

// program finds one of them.
func program(name string) (string, error) {
	dir, err := Programs()
	if err != nil {
		return "", err
	}
	// go test's cache sees what is looked at here: a new binary is a new run.
	p := filepath.Join(dir, name)
	if _, err := os.Stat(p); err != nil {
		return "", fmt.Errorf("%w (run: make kube)", err)
	}
	return p, nil
}

// cache is the folder of this version in the checkout.
func cache() (string, error) {
	r, err := testbed.Repository()
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(r, "test/kube/go.mod"))
	if err != nil {
		return "", err
	}
	v := version.FindSubmatch(mod)
	if v == nil {
		return "", errors.New("test/kube/go.mod requires no k8s.io/kubernetes")
	}
	return filepath.Join(r, ".cache/kube", string(v[1])), nil
}
