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

// startControl starts the scheduler and the controllers, each as the user that
// Kubernetes has for it; the controllers have an account each besides.
func (s *server) startControl(ctx context.Context) error {
	controllers := []string{
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + s.path("service-account.key"), "--root-ca-file=" + s.path("ca.crt"),
		"--cluster-signing-cert-file=" + s.path("ca.crt"), "--cluster-signing-key-file=" + s.path("ca.key"),
	}
	if s.o.PodCIDR != "" {
		controllers = append(controllers, "--allocate-node-cidrs", "--cluster-cidr="+s.o.PodCIDR)
	}
	for name, flags := range map[string][]string{"kube-scheduler": nil, "kube-controller-manager": controllers} {
		if err := s.startController(name, flags); err != nil {
			return err
		}
	}
	return s.controlled(ctx)
}

func (s *server) startController(name string, flags []string) error {
	bin, err := program(name)
	if err != nil {
		return err
	}
	user, err := s.ca.Client("system:" + name)
	if err != nil {
		return err
	}
	kubeconfig := s.path(name + ".kubeconfig")
	if err := writeKubeconfig(kubeconfig, s.config(user)); err != nil {
		return err
	}
	flags = append(flags, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0")
	p, err := start(name, s.path(name+".log"), lean(exec.Command(bin, flags...)))
	if err == nil {
		s.control = append(s.control, p)
	}
	return err
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
