package networks

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// shelf is objects of one kind by namespace and name.
type shelf[T any] map[[2]string]T

func (s shelf[T]) Get(namespace, name string) (T, bool) {
	o, ok := s[[2]string{namespace, name}]
	return o, ok
}

func (s shelf[T]) List() []T { return slices.Collect(maps.Values(s)) }

// counting counts how often all Subnets are read.
type counting struct {
	shelf[*v1.Subnet]
	lists *int
}

func (c counting) List() []*v1.Subnet {
	*c.lists++
	return c.shelf.List()
}

// TestCountsAreNoNews: a Subnet's status, which changes with every pod, has nobody
// look at all Subnets; what decides who is in force does.
func TestCountsAreNoNews(t *testing.T) {
	t.Parallel()
	lists, all, spaces, pools := 0, shelf[*v1.Subnet]{}, shelf[object.Namespace]{}, shelf[*v1.IPPool]{}
	n := New(object.Readers{Subnets: counting{all, &lists}, Namespaces: spaces, Pools: pools, Vpcs: shelf[*v1.Vpc]{}, Nodes: shelf[object.Node]{}, Vlans: shelf[*v1.Vlan]{}, Providers: shelf[*v1.ProviderNetwork]{}}, core.Subnet{}, book.New())
	told := func(what string, looks int, names ...string) {
		t.Helper()
		before := lists
		for _, name := range names {
			n.Changed(object.Key{Kind: object.KindSubnet, Name: name})
		}
		n.All()
		require.Equal(t, looks, lists-before, what)
	}
	change := func(name string, do func(*v1.Subnet)) {
		o := &v1.Subnet{}
		if was := all[[2]string{"", name}]; was != nil {
			o = was.DeepCopy()
		}
		o.Name = name
		do(o)
		all[[2]string{"", name}] = o
	}
	change("a", func(o *v1.Subnet) { o.Spec = v1.SubnetSpec{CIDRBlock: "10.0.0.0/24", Default: true} })
	told("it came", 1, "a")
	_, look := n.Since(0)
	change("a", func(o *v1.Subnet) { o.Status.V4UsingIPs = []byte("7") })
	told("its counts", 0, "a")
	none, again := n.Since(look)
	require.Nil(t, none)
	require.Equal(t, look, again)

	change("a", func(o *v1.Subnet) { o.Spec.CIDRBlock = "10.0.0.0/25" })
	told("its spec", 1, "a")
	require.Equal(t, 25, n.All()["a"].CIDRs[0].Bits())
	change("a", func(o *v1.Subnet) { o.UID = "another" })
	told("made anew", 1, "a")
	spaces[[2]string{"", "x"}] = object.Namespace{Name: "x"}
	n.Changed(object.Key{Kind: object.KindNamespace, Name: "x"})
	told("a namespace", 1)
	n.Changed(object.Key{Kind: object.KindNamespace, Name: "x"})
	told("the same namespace", 0)
	pools[[2]string{"", "p"}] = &v1.IPPool{Spec: v1.IPPoolSpec{Subnet: "a"}}
	n.Changed(object.Key{Kind: object.KindPool, Name: "p"})
	told("a pool", 1)
	delete(all, [2]string{"", "a"})
	told("it went", 1, "a")
	require.NotContains(t, n.All(), "a")
}
