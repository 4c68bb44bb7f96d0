package kube

import (
	"context"
	"errors"
	"fmt"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead/fairlead/internal/testbed/kube/pki"
)

// config is a client's configuration without limits of its own.
func (s *server) config(p pki.Pair) *rest.Config {
	return &rest.Config{
		Host:            s.url(),
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.PEM, CertData: p.Cert, KeyData: p.Key},
	}
}

// serviceAccount makes the account if it is missing and asks for a token.
func (s *server) serviceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(s.config(s.admin))
	if err != nil {
		return nil, err
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(ctx, &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	token, err := accounts.CreateToken(ctx, name, &authentication.TokenRequest{}, meta.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create token %s/%s: %w", namespace, name, err)
	}
	c := s.config(pki.Pair{})
	c.BearerToken = token.Status.Token
	return c, nil
}

// writeKubeconfig puts a configuration with all its secrets into one file.
func writeKubeconfig(file string, c *rest.Config) error {
	if c.CAFile != "" || c.CertFile != "" || c.BearerTokenFile != "" {
		return errors.New("write kubeconfig: the configuration names files")
	}
	k := api.NewConfig()
	k.Clusters["kube"] = &api.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData, TLSServerName: c.ServerName}
	k.AuthInfos["user"] = &api.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}
	k.Contexts["kube"] = &api.Context{Cluster: "kube", AuthInfo: "user"}
	k.CurrentContext = "kube"
	return clientcmd.WriteToFile(*k, file)
}
