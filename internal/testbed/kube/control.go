package kube

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startControl starts the scheduler and the controllers, as administrators of
// the cluster: what each of them may do is Kubernetes' own matter.
func (s *server) startControl(ctx context.Context) error {
	programs := map[string][]string{
		"kube-scheduler": nil,
		"kube-controller-manager": {
			"--service-account-private-key-file=" + s.path("service-account.key"), "--root-ca-file=" + s.path("ca.crt"),
			"--cluster-signing-cert-file=" + s.path("ca.crt"), "--cluster-signing-key-file=" + s.path("ca.key"),
		},
	}
	for name, flags := range programs {
		bin, err := program(name)
		if err != nil {
			return err
		}
		flags = append(flags, "--kubeconfig="+s.path("admin.kubeconfig"), "--leader-elect=false", "--secure-port=0")
		p, err := start(name, s.path(name+".log"), exec.Command(bin, flags...))
		if err != nil {
			return err
		}
		s.control = append(s.control, p)
	}
	return s.controlled(ctx)
}

// controlled waits for the account that the controllers give each namespace,
// without which no pod is admitted.
func (s *server) controlled(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.config(s.admin))
	if err != nil {
		return err
	}
	return until(ctx, "service account default/default", func() error {
		for _, p := range s.control {
			if err := p.ended(); err != nil {
				return err
			}
		}
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errFinal, err)
		}
		return err
	})
}

// stopControl kills scheduler and controllers; the error tells of one that had
// ended by itself.
func (s *server) stopControl() error {
	var errs []error
	for _, p := range s.control {
		errs = append(errs, p.ended())
		p.kill()
	}
	s.control = nil
	return errors.Join(errs...)
}
