// Package kube makes real Kubernetes clusters for tests, of two levels.
//
// Level A is an API server: a private etcd and kube-apiserver from .cache/kube
// (`make kube` builds it once for each version, some minutes), on loopback,
// with RBAC and the node authorizer in force and the CRDs of deploy/crds
// installed. There is no scheduler and no controller: pods are bound by
// spec.nodeName, nothing deletes or makes objects but the test, and a namespace
// that was deleted stays Terminating. One cluster may serve all tests of a
// package:
//
//	func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }
//
//	func TestAgentReadsNothing(t *testing.T) {
//		c := kube.Shared(t)                       // or kube.Start(t, kube.Options{}) to have one alone
//		ns := c.Namespace()
//		c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: ` + ns + `},
//		  spec: {nodeName: ` + ns + `, containers: [{name: c, image: none}]}}`)
//		cfg := c.ServiceAccountConfig(ns, "agent") // *rest.Config; rights only by RBAC objects
//		since := c.Mark()
//		...                                       // the code under test, with cfg
//		require.Empty(t, c.Requests(kube.Filter{Since: since, User: "system:serviceaccount:" + ns + ":agent", Verbs: kube.Reads}))
//	}
//
// An agent in a test node reaches it through a link, which can be cut:
//
//	n := testbed.New(t)
//	link := c.Link(n.NetnsPath())
//	n.Agent("--kubeconfig", c.Kubeconfig(cfg))
//	link.Cut()
//
// Stop, Restart, Pause and Resume act on the API server's process.
//
// Level B adds machines: kubelet and containerd in the namespaces of a testbed
// node, with two images made on the spot (Busybox, Pause), any number of them
// in one cluster:
//
//	n := kube.StartNode(t, c, testbed.New(t), kube.NodeOptions{}) // Conf: a conflist, to do without an agent
//	n.Agent("--kubeconfig", ...)                                  // the node is Ready once a CNI conf is in /etc/cni/net.d
//	n.WaitReady()
//	p := n.RunPod(kube.Shell(ns, "web", `{"k8s.v1.cni.cncf.io/networks": "macvlan"}`, "exec httpd -f -p 80"))
//	out, err := p.Exec("ip", "addr")                              // as kubectl exec
//	p.Delete()                                                    // and waits for the end
//	n.RestartKubelet()
//	n.Reboot()
//
// Everything dies with the test process, even when that is killed; at the end
// of the test or of Main all of it is proven gone.
//
// StartProxy is kube-proxy on a testbed node, for what the node sends to Services.
//
// With Options.Control there are kube-scheduler and kube-controller-manager too;
// as everybody in a cluster, each has its own user: nothing but a test is the
// administrator.
//
// The package knows nothing of Fairlead but where its CRDs lie.
package kube
