package external

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// shelf is a Lister of what it has, by namespace and name.
type shelf[T any] map[string]T

func (s shelf[T]) List() (out []T) {
	for _, v := range s {
		out = append(out, v)
	}
	return out
}

func (s shelf[T]) Get(namespace, name string) (T, bool) {
	v, ok := s[namespace+"/"+name]
	return v, ok
}

// board is where events and rows go.
type board struct {
	object.Outcomes
	said []string
	rows string
}

func (b *board) Warn(_ context.Context, of object.Object, e object.Event) {
	b.said = append(b.said, fmt.Sprint(of.Key)+" "+e.Reason+" "+e.Message)
}

func (b *board) Apply(_ context.Context, s *ovn.Set) error {
	b.rows = fmt.Sprintf("%+v", s)
	return nil
}

// TestRefusedConfigMap: with a ConfigMap that is refused pods go on to come and go by the
// last good one: who gets a dead pod's address inside has not its address outside.
func TestRefusedConfigMap(t *testing.T) {
	t.Parallel()
	b := &board{}
	pod := func(name, eip string) object.Pod {
		return object.Pod{Pod: core.Pod{Namespace: "web", Name: name}, Annotations: map[string]string{annEIP: eip}}
	}
	pods := shelf[object.Pod]{"web/a": pod("a", "192.0.2.50"), "web/new": pod("new", "192.0.2.51"), "web/far": pod("far", "192.0.2.52")}
	ip := func(subnet, addr string) *v1.IP { return &v1.IP{Spec: v1.IPSpec{Subnet: subnet, IPAddress: addr}} }
	ips := shelf[*v1.IP]{"/a.web": ip("s", "10.0.0.2"), "/far.web": ip("vlan", "10.0.1.2")}
	subnets := shelf[*v1.Subnet]{"/s": {}, "/vlan": {ObjectMeta: metav1.ObjectMeta{Name: "vlan"}, Spec: v1.SubnetSpec{Vlan: "v"}}}
	k := New(Config{World: object.World{Readers: object.Readers{Nodes: shelf[object.Node]{}, Pods: pods, IPs: ips, Subnets: subnets}, Outcomes: b}, DB: b})
	k.lead(nil)
	data := map[string]string{"enable-external-gw": "true", "external-gw-nic": "eth1", "nic-ip": "192.0.2.9/24", "external-gw-addr": "192.0.2.1"}
	once := func() {
		t.Helper()
		b.said = nil
		require.NoError(t, k.once(t.Context(), map[string]Map{declare.ConfigExternal: {Name: declare.ConfigExternal, Data: data}}))
	}
	once()
	require.Contains(t, b.rows, "10.0.0.2")
	require.NotContains(t, b.rows, "10.0.1.2")
	require.Contains(t, fmt.Sprint(b.said), "leaves by the physical gateway of Subnet vlan")
	require.NotContains(t, fmt.Sprint(b.said), "new", "it has no address yet")

	delete(pods, "web/a")
	data["type"] = "distributed"
	once()
	require.Contains(t, fmt.Sprint(b.said), "ExternalGatewayRefused")
	require.NotContains(t, b.rows, "10.0.0.2")
	require.Contains(t, b.rows, "ovn-cluster-external", "the gateway stays")
}
