package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

const plain = `{"cniVersion":"1.1.0","name":"net","type":"fairlead"}`

// unlabelled is the code of an error that nobody gave one.
const unlabelled = 999

func TestNetnsRoots(t *testing.T) {
	for path, ok := range map[string]bool{
		"/run/netns/a": true, "/var/run/netns/cni-1": true, "/run/docker/netns/1": true, "/var/run/docker/netns/1": true,
		"/proc/12/ns/net": true, "/proc/12/task/13/ns/net": true, "/proc/self/ns/net": true,
		"": false, "run/netns/a": false, "/run/netns/../x": false, "/run/netns//a": false, "/run/netns": false,
		"/proc/1/ns/mnt": false, "/proc/1/root/run/netns/a": false, "/tmp/netns/a": false, "/run/netnsx/a": false,
	} {
		require.Equal(t, ok, validateNetns(path) == nil, path)
	}
}

// TestDelForgives: a DEL keeps what is right and drops what is not.
func TestDelForgives(t *testing.T) {
	req, err := Decode(cni.Request{
		Command: "DEL", ContainerID: "c1", IfName: "eth0", Netns: "/etc/passwd",
		Args: "K8S_POD_NAMESPACE=../x;K8S_POD_NAME=p", Config: []byte("{"),
	})
	require.NoError(t, err)
	require.Equal(t, core.Key{Container: "c1", IfName: "eth0"}, req.Key)
	require.Empty(t, req.Netns)
	require.True(t, req.Pod.IsZero())
	_, err = Decode(cni.Request{Command: "DEL", ContainerID: "../c1", IfName: "eth0", Config: []byte("{")})
	require.Equal(t, core.CodeEnv, core.CodeOf(err))
}

func TestKubeOVNDelNeedsOnlyItsKey(t *testing.T) {
	req, err := DecodeKubeOVN(cni.KubeOVNRequest{
		CNIType: "macvlan", ContainerID: "c1", IfName: "eth0", DeviceID: "x", NetNs: "/etc",
		Routes: []cni.KubeOVNRoute{{Destination: "x"}},
	}, core.Del)
	require.NoError(t, err)
	require.Equal(t, core.Key{Container: "c1", IfName: "eth0"}, req.Key)
	require.Empty(t, req.Netns)
}

func TestKubeOVNAddRefusals(t *testing.T) {
	good := cni.KubeOVNRequest{
		CNIType: "kube-ovn", PodName: "p", PodNamespace: "ns", ContainerID: "c1", IfName: "eth0", NetNs: "/run/netns/a",
	}
	_, err := DecodeKubeOVN(good, core.Add)
	require.NoError(t, err)
	for says, change := range map[string]func(*cni.KubeOVNRequest){
		"pod_name":          func(r *cni.KubeOVNRequest) { r.PodName = "" },
		"K8S_POD_NAME":      func(r *cni.KubeOVNRequest) { r.PodName = "../x" },
		"K8S_POD_NAMESPACE": func(r *cni.KubeOVNRequest) { r.PodNamespace = "a/b" },
		"cni_type":          func(r *cni.KubeOVNRequest) { r.CNIType = "" },
		"deviceID":          func(r *cni.KubeOVNRequest) { r.DeviceID = "0000:00:01.0" },
		"routes":            func(r *cni.KubeOVNRequest) { r.Routes = []cni.KubeOVNRoute{{Destination: "10.0.0.0"}} },
		"CNI_NETNS":         func(r *cni.KubeOVNRequest) { r.NetNs = "" },
		"CNI_IFNAME":        func(r *cni.KubeOVNRequest) { r.IfName = "a/b" },
		"CNI_CONTAINERID":   func(r *cni.KubeOVNRequest) { r.ContainerID = "a/b" },
	} {
		bad := good
		change(&bad)
		_, err := DecodeKubeOVN(bad, core.Add)
		require.ErrorContains(t, err, says)
		require.NotEqual(t, uint(unlabelled), core.CodeOf(err), says)
	}
}

// FuzzSocketBody: whatever stands in the body of a call, it becomes a request
// whose names are safe in a path, or an error with a code.
func FuzzSocketBody(f *testing.F) {
	for _, config := range []string{
		plain, "", "{", `{"cniVersion":"9.9.9"}`, `{"cniVersion":"0.4.0","name":"a","type":"multus","delegates":[{"type":"kube-ovn"}]}`,
		`{"cniVersion":"1.1.0","name":"a","type":"kube-ovn","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`,
		`{"cniVersion":"1.0.0","name":"a","type":"fairlead","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"}]}}`,
		`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}",
	} {
		for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
			body, err := json.Marshal(cni.Request{
				Command: command, ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/a",
				Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p", Path: "/opt/cni/bin", Config: []byte(config),
			})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	f.Add([]byte(`{"command":"ADD","config":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var in cni.Request
		if json.Unmarshal(body, &in) != nil {
			// Most mutations break the base64: let them reach the parser.
			in = cni.Request{Command: "ADD", ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/a", Config: body}
		}
		req, err := Decode(in)
		if err != nil {
			labelled(t, in, req, err)
			return
		}
		safe(t, req)
	})
}

func labelled(t *testing.T, in cni.Request, req core.Request, err error) {
	t.Helper()
	if core.CodeOf(err) == unlabelled {
		t.Fatalf("no code: %v", err)
	}
	var e cni.Error
	if bad := json.Unmarshal(cniconf.ErrorJSON(errorVersion(in, req), err, ""), &e); bad != nil || e.Code == 0 || e.Msg == "" {
		t.Fatalf("no CNI error: %v, %+v", bad, e)
	}
}

// safe proves what later code builds paths and names of.
func safe(t *testing.T, req core.Request) {
	t.Helper()
	if req.Op == core.GC || req.Op == core.Status {
		return
	}
	for _, name := range []string{req.Key.Container, req.Key.IfName} {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/ \n\x00") {
			t.Fatalf("unsafe name %q", name)
		}
	}
	for _, name := range []string{req.Pod.Namespace, req.Pod.Name, req.Pod.UID} {
		if name == ".." || strings.ContainsAny(name, "/ \n\x00") {
			t.Fatalf("unsafe pod %q", name)
		}
	}
	if req.Netns != "" && validateNetns(req.Netns) != nil {
		t.Fatalf("unsafe netns %q", req.Netns)
	}
}

// FuzzKubeOVNRequest is the same for the wire of Kube-OVN's plugin.
func FuzzKubeOVNRequest(f *testing.F) {
	f.Add([]byte(`{"cni_type":"kube-ovn","pod_name":"p","pod_namespace":"ns","container_id":"c1","net_ns":"/proc/1/ns/net","if_name":"eth0","provider":"ovn"}`))
	f.Add([]byte(`{"cni_type":"kube-ovn","pod_name":"p","pod_namespace":"ns","container_id":"c1","net_ns":"/run/netns/a","if_name":"eth0",` +
		`"routes":[{"dst":"10.0.0.0/8","gw":"10.0.0.1"}],"dns":{"nameservers":["1.1.1.1"]}}`))
	f.Add([]byte(`{"container_id":"../x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var in cni.KubeOVNRequest
		if json.Unmarshal(body, &in) != nil {
			return
		}
		for _, op := range []core.Op{core.Add, core.Del} {
			req, err := DecodeKubeOVN(in, op)
			if err != nil && core.CodeOf(err) == unlabelled {
				t.Fatalf("no code: %v", err)
			}
			if err == nil {
				safe(t, req)
			}
		}
	})
}

// TestDecodeRefusals: what can never succeed is refused with the code of its kind
// and the name of what is wrong; a DEL is not.
func TestDecodeRefusals(t *testing.T) {
	good := cni.Request{Command: "ADD", ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/a", Config: []byte(plain)}
	for says, c := range map[string]struct {
		code   uint
		change func(*cni.Request)
	}{
		"CNI_ARGS: FOO, WEB: not known": {4, func(r *cni.Request) { r.Args = "WEB=1;FOO=2;MAC=02:00:00:00:00:01" }},
		"CNI_ARGS: FOO: not known":      {4, func(r *cni.Request) { r.Args = "FOO=2;IgnoreUnknown=0" }},
		"IgnoreUnknown":                 {4, func(r *cni.Request) { r.Args = "IgnoreUnknown=perhaps" }},
		`CNI_IFNAME "all"`:              {4, func(r *cni.Request) { r.IfName = "all" }},
		`CNI_IFNAME "default"`:          {4, func(r *cni.Request) { r.IfName = "default" }},
		"not JSON":                      {6, func(r *cni.Request) { r.Config = r.Config[:20] }},
		"cniVersion 0.3.1 has no CHECK": {1, func(r *cni.Request) {
			r.Command, r.Config = "CHECK", []byte(strings.Replace(plain, "1.1.0", "0.3.1", 1))
		}},
		"cniVersion 1.0.0 has no GC": {1, func(r *cni.Request) { r.Command, r.Config = "GC", []byte(strings.Replace(plain, "1.1.0", "1.0.0", 1)) }},
	} {
		r := good
		c.change(&r)
		_, err := Decode(r)
		require.ErrorContains(t, err, says)
		require.Equal(t, c.code, core.CodeOf(err), says)
		if r.IfName == good.IfName {
			r.Command = "DEL"
			_, err = Decode(r)
			require.NoError(t, err, says)
		}
	}
	good.Args = "IgnoreUnknown=true;FOO=2"
	_, err := Decode(good)
	require.NoError(t, err)
}
