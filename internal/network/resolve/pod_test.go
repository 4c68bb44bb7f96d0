package resolve

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

const fixedIP = "ovn.kubernetes.io/ip_address"

// TestWhoseAnnotationsAreInForce: the source's where it knows this pod, else
// those that the runtime tells.
func TestWhoseAnnotationsAreInForce(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		uid   string // K8S_POD_UID
		found *Pod   // by the source, "10.16.0.5" in its annotations
		down  error
		told  bool // "10.16.0.9" by the runtime
		want  string
		code  uint
	}{
		"nobody knows":                {want: ""},
		"unknown pod":                 {told: true, want: "10.16.0.9"},
		"unknown pod with UID":        {uid: "u1", told: true, want: "10.16.0.9"},
		"known":                       {uid: "u1", found: &Pod{Pod: core.Pod{UID: "u1"}}, told: true, want: "10.16.0.5"},
		"known, runtime has no UID":   {found: &Pod{Pod: core.Pod{UID: "u1"}}, told: true, want: "10.16.0.5"},
		"known, source has no UID":    {uid: "u1", found: &Pod{}, told: true, want: "10.16.0.5"},
		"mirror of a static pod":      {uid: hash, found: &Pod{Pod: core.Pod{UID: "u1"}}, told: true, want: "10.16.0.5"},
		"a predecessor":               {uid: "u2", found: &Pod{Pod: core.Pod{UID: "u1"}}, told: true, want: "10.16.0.9"},
		"a predecessor, nothing told": {uid: "u2", found: &Pod{Pod: core.Pod{UID: "u1"}}, code: core.CodeTryAgain},
		"nobody can say":              {uid: "u1", down: core.ErrUnavailable, told: true, want: "10.16.0.9"},
		"nobody can say or tell":      {uid: "u1", down: core.ErrUnavailable, code: core.CodeTryAgain},
		"declared and wrong":          {down: core.Errorf(core.CodeValue, "Pod default/p is declared but wrong"), told: true, code: core.CodeValue},
	} {
		t.Run(name, func(t *testing.T) {
			w := standard()
			delete(w.pods, "default/p")
			if c.found != nil {
				c.found.Annotations = map[string]string{fixedIP: "10.16.0.5"}
				w.pods["default/p"] = c.found
			}
			w.podDown = c.down
			req := request()
			req.Pod.UID = c.uid
			if c.told {
				req.Conf.Annotations = map[string]string{fixedIP: "10.16.0.9"}
			}
			wants, err := Resolve(t.Context(), w, Input{Request: req})
			if c.code != 0 {
				require.Equal(t, c.code, core.CodeOf(err), "%v", err)
				return
			}
			require.NoError(t, err)
			var ips []string
			for _, ip := range wants[0].Steps[0].NIC.IPs {
				ips = append(ips, ip.String())
			}
			require.Equal(t, c.want, fmt.Sprint(append(ips, "")[0]))
		})
	}
}

// TestToldAnnotationsDecideAllNetworks: they are read as strictly as a source's.
func TestToldAnnotationsDecideAllNetworks(t *testing.T) {
	w := standard()
	delete(w.pods, "default/p")
	req := request()
	req.Conf.Annotations = map[string]string{networks: "second@x,foreign", "v1.multus-cni.io/default-network": "kube-system/main"}
	wants, err := Resolve(t.Context(), w, Input{Request: req})
	require.NoError(t, err)
	var got []string
	for _, want := range wants {
		got = append(got, want.Network+"@"+want.IfName)
	}
	require.Equal(t, []string{"kube-system/main@eth0", "default/second@x", "default/foreign@net1"}, got)

	req.Conf.Annotations = map[string]string{fixedIP: "10.16.0.256"}
	_, err = Resolve(t.Context(), w, Input{Request: req})
	require.Equal(t, core.CodeValue, core.CodeOf(err))
	require.ErrorContains(t, err, fixedIP)

	req.Pod, req.Conf.Annotations = core.Pod{}, map[string]string{networks: "second"}
	wants, err = Resolve(t.Context(), w, Input{Request: req})
	require.NoError(t, err)
	require.Len(t, wants, 1, "a container that is no pod")
}

// TestNobodyWaitsForAPodWhoseAnnotationsAreTold, but for one whose controller
// decides which address of its list it has.
func TestNobodyWaitsForAPodWhoseAnnotationsAreTold(t *testing.T) {
	src := &prompt{world: standard()}
	delete(src.pods, "default/p")
	for name, c := range map[string]struct {
		told   map[string]string
		waited int
	}{
		"nothing told": {nil, 1},
		"none":         {map[string]string{}, 0},
		"told":         {map[string]string{networks: "plain", fixedIP: "10.16.0.9"}, 0},
		"list":         {map[string]string{ipPool: "10.16.0.7;10.16.0.8"}, 1},
	} {
		src.awaited = 0
		req := request()
		req.Conf.Annotations = c.told
		_, err := Resolve(t.Context(), src, Input{Request: req})
		require.NoError(t, err, name)
		require.Equal(t, c.waited, src.awaited, name)
	}
}
