package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// api is a kube-apiserver with its etcd on a node of its own. Both are billed
// to the side that uses them.
type api struct {
	node *node
	http *http.Client
	dir  string // in the node's folder
}

const (
	apiHost   = "127.0.0.1"
	apiPort   = "6443"
	apiToken  = "bench"
	benchNS   = "bench"
	benchNode = "bench"
)

// startAPI runs etcd and kube-apiserver in the node and waits until it answers.
func (b *bench) startAPI(n *node) (*api, error) {
	a := &api{node: n, dir: filepath.Join(n.dir, "api")}
	a.http = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 2 * makers,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // on loopback in a namespace made for it
		DialContext:         func(_ context.Context, network, addr string) (net.Conn, error) { return n.dial(network, addr) },
	}}
	if err := a.files(); err != nil {
		return nil, err
	}
	etcd, err := n.start("etcd", "--data-dir", filepath.Join(a.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380")
	if err != nil {
		return nil, err
	}
	if err := n.inside(func() error {
		return etcd.await(func() error {
			c, err := net.Dial("tcp", "127.0.0.1:2379")
			if err == nil {
				err = c.Close()
			}
			return err
		})
	}); err != nil {
		return nil, err
	}
	d, err := n.start(b.kube("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--secure-port="+apiPort, "--bind-address="+apiHost, "--advertise-address=192.0.2.1",
		"--cert-dir="+filepath.Join(a.dir, "certs"), "--token-auth-file="+filepath.Join(a.dir, "tokens"), "--authorization-mode=AlwaysAllow",
		"--service-account-key-file="+filepath.Join(a.dir, "sa.key"), "--service-account-signing-key-file="+filepath.Join(a.dir, "sa.key"),
		"--service-account-issuer=https://bench", "--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true", "--v=0")
	if err != nil {
		return nil, err
	}
	return a, d.await(func() error {
		_, err := a.do(http.MethodGet, "/readyz", nil)
		return err
	})
}

// files are what the API server and its clients read: a token of everything, a
// key, a kubeconfig.
func (a *api) files() error {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	pemKey := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return errors.Join(
		os.WriteFile(filepath.Join(a.dir, "sa.key"), pemKey, 0o600),
		os.WriteFile(filepath.Join(a.dir, "tokens"), []byte(apiToken+",bench,bench,system:masters\n"), 0o600),
		os.WriteFile(a.kubeconfig(), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s:%s", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, apiHost, apiPort, apiToken), 0o600))
}

func (a *api) kubeconfig() string { return filepath.Join(a.dir, "kubeconfig") }

// do sends one request; a body is JSON, nil for none.
func (a *api) do(method, path string, body any) ([]byte, error) {
	if body == nil { // not "null", which would come before what the path asks of a deletion
		return a.send(method, path, "application/json", nil)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return a.send(method, path, "application/json", raw)
}

func (a *api) send(method, path, kind string, body []byte) ([]byte, error) {
	resp, err := a.open(method, path, kind, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// open sends a request; an answer other than success is an error.
func (a *api) open(method, path, kind string, body []byte) (*http.Response, error) {
	req, err := http.NewRequest(method, "https://"+net.JoinHostPort(apiHost, apiPort)+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+apiToken)
	req.Header.Set("Content-Type", kind)
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	out, _ := io.ReadAll(resp.Body)
	return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, out)
}

// installCRDs installs the CRDs of folders of the checkout's deploy.
func (a *api) installCRDs(b *bench, folders ...string) error {
	var files []string
	for _, dir := range folders {
		found, err := filepath.Glob(filepath.Join(b.root, "deploy", dir, "*.yaml"))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if _, err := a.send(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", data); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return until(func() error {
		_, err := a.do(http.MethodGet, nadPath, nil)
		_, err2 := a.do(http.MethodGet, "/apis/kubeovn.io/v1/subnets", nil)
		return errors.Join(err, err2)
	})
}

const nadPath = "/apis/k8s.cni.cncf.io/v1/namespaces/" + benchNS + "/network-attachment-definitions"

// dial connects from inside the node.
func (n *node) dial(network, addr string) (c net.Conn, err error) {
	err = n.inside(func() error {
		c, err = net.DialTimeout(network, addr, 5*time.Second)
		return err
	})
	return c, err
}

// clustered is a side whose pods are objects of an API server too. A call is
// done when the pod's network status is written.
type clustered struct {
	plugin
	api     *api
	names   map[*pod]object   // the present ones
	written sync.Map          // names of pods that have a status
	after   func() error      // what else to wait for
	agent   *daemon           // of ours
	asks    map[string]string // annotations of the pods, nil: they ask for net1
	called  func(*pod) string // what a pod is called, nil: otherwise with each container
}

// object is a Pod of the API server.
type object struct{ name, uid string }

const podPath = "/api/v1/namespaces/" + benchNS + "/pods"

// Prepare makes new Pod objects, as a new container is of a new pod.
func (c *clustered) Prepare(pods []*pod) error {
	for _, p := range pods {
		if old, ok := c.names[p]; ok {
			if _, err := c.api.do(http.MethodDelete, podPath+"/"+old.name+"?gracePeriodSeconds=0", nil); err != nil {
				return err
			}
		}
		name, asks := fmt.Sprintf("%s-%s", p.name, p.container[:12]), map[string]string{"k8s.v1.cni.cncf.io/networks": "net1"}
		if c.called != nil {
			name = c.called(p)
		}
		if c.asks != nil {
			asks = c.asks
		}
		out, err := c.api.do(http.MethodPost, podPath, map[string]any{
			"metadata": map[string]any{"name": name, "annotations": asks},
			"spec":     map[string]any{"nodeName": "bench", "containers": []map[string]string{{"name": "c", "image": "x"}}},
		})
		if err != nil {
			return err
		}
		var made struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(out, &made); err != nil {
			return err
		}
		c.names[p] = object{name, made.Metadata.UID}
	}
	return nil
}

// Call is plugin's, for the pod's object.
func (c *clustered) Call(w *worker, command string, p *pod) error {
	o := c.names[p]
	env := environ(command, filepath.Dir(c.path), p)
	for i, v := range env {
		if strings.HasPrefix(v, "CNI_ARGS=") {
			env[i] = "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + benchNS + ";K8S_POD_NAME=" + o.name +
				";K8S_POD_INFRA_CONTAINER_ID=" + p.container + ";K8S_POD_UID=" + o.uid
		}
	}
	_, err := w.run(env, c.conf, c.path)
	return err
}

// Settle waits until every pod that was attached has its status.
func (c *clustered) Settle() error {
	if c.after != nil {
		if err := c.after(); err != nil {
			return err
		}
	}
	return until(func() error {
		for _, o := range c.names {
			if _, ok := c.written.Load(o.name); !ok {
				return fmt.Errorf("pod %s has no network status", o.name)
			}
		}
		return nil
	})
}

// watch notes which pods have a network status, until the API server ends. The
// server ends a watch when it likes; each begins with all that is there.
func (c *clustered) watch() {
	for {
		resp, err := c.api.open(http.MethodGet, podPath+"?watch=1", "", nil)
		if err != nil {
			return
		}
		for d := json.NewDecoder(resp.Body); ; {
			var event struct {
				Object struct {
					Metadata struct {
						Name        string
						Annotations map[string]string
					}
				}
			}
			if d.Decode(&event) != nil {
				break
			}
			if m := event.Object.Metadata; m.Annotations["k8s.v1.cni.cncf.io/network-status"] != "" {
				c.written.Store(m.Name, true)
			}
		}
		_ = resp.Body.Close()
	}
}
