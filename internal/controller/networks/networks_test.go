package networks

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/core"
)

// counting counts how often all Subnets are read.
type counting struct {
	objecttest.Shelf[*v1.Subnet]
	lists *int
}

func (c counting) List() []*v1.Subnet {
	*c.lists++
	return c.Shelf.List()
}

// TestCountsAreNoNews: a Subnet's status, which changes with every pod, has nobody
// look at all Subnets; what decides who is in force does.
func TestCountsAreNoNews(t *testing.T) {
	t.Parallel()
	lists, all, spaces, pools := 0, objecttest.Shelf[*v1.Subnet]{}, objecttest.Shelf[object.Namespace]{}, objecttest.Shelf[*v1.IPPool]{}
	n := New(object.Readers{Subnets: counting{all, &lists}, Namespaces: spaces, Pools: pools, Vpcs: objecttest.Shelf[*v1.Vpc]{}, Nodes: objecttest.Shelf[object.Node]{}, Vlans: objecttest.Shelf[*v1.Vlan]{}, Providers: objecttest.Shelf[*v1.ProviderNetwork]{}}, core.Subnet{}, book.New())
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
		if was := all["/"+name]; was != nil {
			o = was.DeepCopy()
		}
		o.Name = name
		do(o)
		all["/"+name] = o
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
	spaces["/x"] = object.Namespace{Name: "x"}
	n.Changed(object.Key{Kind: object.KindNamespace, Name: "x"})
	told("a namespace", 1)
	n.Changed(object.Key{Kind: object.KindNamespace, Name: "x"})
	told("the same namespace", 0)
	pools["/p"] = &v1.IPPool{Spec: v1.IPPoolSpec{Subnet: "a"}}
	n.Changed(object.Key{Kind: object.KindPool, Name: "p"})
	told("a pool", 1)
	delete(all, "/a")
	told("it went", 1, "a")
	require.NotContains(t, n.All(), "a")
}
