package kube

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Pod is a pod on a node, made through the API server.
type Pod struct {
	Namespace string
	Name      string
	UID       types.UID

	k *Node
}

// CreatePod makes one pod on this node and does not wait. What the text leaves
// open is filled in: the node's name, toleration of everything, one second of
// grace, no service account token.
func (k *Node) CreatePod(text string) *Pod {
	k.t.Helper()
	objects, err := decode(text)
	require.NoError(k.t, err)
	require.Len(k.t, objects, 1, "one pod")
	o := objects[0]
	for path, v := range map[string]any{
		"nodeName":                      k.Name,
		"terminationGracePeriodSeconds": int64(1),
		"automountServiceAccountToken":  false,
		"enableServiceLinks":            false,
		"tolerations":                   []any{map[string]any{"operator": "Exists"}},
	} {
		if _, set, err := unstructured.NestedFieldNoCopy(o.Object, "spec", path); err == nil && !set {
			require.NoError(k.t, unstructured.SetNestedField(o.Object, v, "spec", path))
		}
	}
	a, err := newApplier(k.c.Admin())
	require.NoError(k.t, err)
	stored, err := a.apply(context.Background(), o)
	require.NoError(k.t, err)
	return &Pod{Namespace: stored.GetNamespace(), Name: stored.GetName(), UID: stored.GetUID(), k: k}
}

// RunPod is CreatePod and WaitRunning.
func (k *Node) RunPod(text string) *Pod {
	k.t.Helper()
	p := k.CreatePod(text)
	p.WaitRunning()
	return p
}

// Shell is the text of a pod that runs a shell script in busybox; annotations
// is a YAML or JSON mapping, or "". Without a script it waits for its end.
func Shell(namespace, name, annotations, script string) string {
	if annotations == "" {
		annotations = "{}"
	}
	if script == "" {
		script = "exec sleep 1000000"
	}
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
"metadata": {"namespace": %q, "name": %q, "annotations": %s},
"spec": {"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", %q]}]}}`, namespace, name, annotations, Busybox, script)
}

// Object reads the pod from the API server.
func (p *Pod) Object() (*core.Pod, error) {
	ctx, cancel := limited()
	defer cancel()
	return p.k.c.Client().CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
}

// WaitRunning waits until all containers run. The error of a pod that does not
// get there holds its events.
func (p *Pod) WaitRunning() {
	p.k.t.Helper()
	err := until(context.Background(), "pod "+p.Name+" Running", func() error {
		if err := p.k.ended(); err != nil {
			return err
		}
		o, err := p.Object()
		if err != nil {
			return err
		}
		if o.Status.Phase == core.PodFailed || o.Status.Phase == core.PodSucceeded {
			return fmt.Errorf("%w: %s: %s", errFinal, o.Status.Phase, o.Status.Message)
		}
		for _, c := range o.Status.ContainerStatuses {
			if c.State.Running == nil {
				return fmt.Errorf("container %s: %+v", c.Name, c.State)
			}
		}
		if o.Status.Phase != core.PodRunning {
			return fmt.Errorf("phase %s", o.Status.Phase)
		}
		return nil
	})
	if err != nil {
		require.NoError(p.k.t, err, "events:\n%s", strings.Join(p.Events(), "\n"))
	}
}

// Events are the pod's events, "reason: message".
func (p *Pod) Events() []string {
	p.k.t.Helper()
	ctx, cancel := limited()
	defer cancel()
	list, err := p.k.c.Client().CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	require.NoError(p.k.t, err)
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

// IPs are the pod's addresses as kubelet reports them.
func (p *Pod) IPs() []string {
	p.k.t.Helper()
	o, err := p.Object()
	require.NoError(p.k.t, err)
	var out []string
	for _, ip := range o.Status.PodIPs {
		out = append(out, ip.IP)
	}
	return out
}

// Exec runs a command in the pod's first container, as `kubectl exec` does:
// through API server, kubelet and runtime. It returns standard output; the error
// holds standard error. (A process of kubectl costs more than the command.)
func (p *Pod) Exec(argv ...string) (string, error) {
	p.k.t.Helper()
	at := p.k.c.Client().CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("exec").
		VersionedParams(&core.PodExecOptions{Command: argv, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	e, err := remotecommand.NewWebSocketExecutor(p.k.c.Admin(), http.MethodGet, at.String())
	if err != nil {
		return "", err
	}
	ctx, cancel := limited()
	defer cancel()
	var stdout, stderr strings.Builder
	if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return stdout.String(), fmt.Errorf("exec %s: %w: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Logs is what the pod's first container has printed, as `kubectl logs` gives it.
func (p *Pod) Logs() (string, error) {
	p.k.t.Helper()
	return p.k.c.TryKubectl("", "logs", "-n", p.Namespace, p.Name)
}

// Forward leads a free port of loopback to a port of the pod, as `kubectl
// port-forward` does, until the test ends. It gives the address, host:port.
func (p *Pod) Forward(port int) string {
	p.k.t.Helper()
	bin, err := program("kubectl")
	require.NoError(p.k.t, err)
	log := filepath.Join(p.k.Dir, "log", fmt.Sprintf("forward-%s-%d", p.Name, port))
	cmd := exec.Command(bin, "--kubeconfig="+p.k.c.AdminKubeconfig(), "port-forward", "--address=127.0.0.1", "-n", p.Namespace,
		"pod/"+p.Name, fmt.Sprintf(":%d", port))
	f, err := start("kubectl port-forward", log, cmd)
	require.NoError(p.k.t, err)
	p.k.t.Cleanup(f.kill)
	var addr string
	require.NoError(p.k.t, until(context.Background(), "kubectl port-forward", func() error {
		if err := f.ended(); err != nil {
			return err
		}
		said := f.tail()
		if _, err := fmt.Sscanf(said, "Forwarding from %s", &addr); err != nil || !strings.Contains(said, "\n") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	}))
	return addr
}

// Nsenter runs one of the machine's programs in the pod's network namespace.
func (p *Pod) Nsenter(argv ...string) (string, error) {
	p.k.t.Helper()
	return p.k.Try(append([]string{"nsenter", "--net=" + p.Netns(), "--"}, argv...)...)
}

// Netns is the path of the pod's network namespace inside the node: the
// plugins' CNI_NETNS.
func (p *Pod) Netns() string {
	p.k.t.Helper()
	_, netns, err := p.k.sandbox(string(p.UID))
	require.NoError(p.k.t, err)
	return netns
}

// ContainerID is the sandbox's id: the plugins' CNI_CONTAINERID.
func (p *Pod) ContainerID() string {
	p.k.t.Helper()
	id, _, err := p.k.sandbox(string(p.UID))
	require.NoError(p.k.t, err)
	return id
}

// Delete deletes the pod as a user would and waits until kubelet has ended it
// and its object is gone.
func (p *Pod) Delete() {
	p.k.t.Helper()
	ctx, cancel := limited()
	defer cancel()
	// One second: with none the object goes before the pod.
	grace := int64(1)
	err := p.k.c.Client().CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	require.NoError(p.k.t, err)
	require.NoError(p.k.t, until(context.Background(), "the end of pod "+p.Name, func() error {
		o, err := p.Object()
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case o.UID != p.UID:
			return nil
		}
		return fmt.Errorf("phase %s", o.Status.Phase)
	}))
}
