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

// shelves have nothing.
func shelves() object.Readers {
	return object.Readers{
		Subnets: objecttest.Shelf[*v1.Subnet]{}, Namespaces: objecttest.Shelf[object.Namespace]{}, Pools: objecttest.Shelf[*v1.IPPool]{}, Vpcs: objecttest.Shelf[*v1.Vpc]{},
		Nodes: objecttest.Shelf[object.Node]{}, Vlans: objecttest.Shelf[*v1.Vlan]{}, Providers: objecttest.Shelf[*v1.ProviderNetwork]{},
	}
}

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
	from := shelves()
	from.Subnets, from.Namespaces, from.Pools = counting{all, &lists}, spaces, pools
	n := New(from, core.Subnet{}, book.New())
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

// TestOneMoreSubnet: a Subnet that comes leaves all others what they are, which are neither
// read nor compared again, however many they are; what a pool takes from one is its own.
func TestOneMoreSubnet(t *testing.T) {
	t.Parallel()
	all, pools, from := objecttest.Shelf[*v1.Subnet]{}, objecttest.Shelf[*v1.IPPool]{}, shelves()
	from.Subnets, from.Pools = all, pools
	n := New(from, core.Subnet{}, book.New())
	put := func(name, cidr string) {
		o := &v1.Subnet{Spec: v1.SubnetSpec{CIDRBlock: cidr}}
		o.Name = name
		all["/"+name] = o
		n.Changed(object.Key{Kind: object.KindSubnet, Name: name})
	}
	put("a", "10.1.0.0/16")
	put("b", "10.2.0.0/16")
	before := n.All()
	put("c", "10.3.0.0/16")
	now := n.All()
	require.Equal(t, []string{"c"}, Differ(before, now))
	require.Same(t, before["a"], now["a"])
	require.Same(t, before["b"], now["b"])

	pool := &v1.IPPool{Spec: v1.IPPoolSpec{Subnet: "a", IPs: []v1.AddressRange{"10.1.0.9"}}}
	pool.Name = "p"
	pools["/p"] = pool
	n.Changed(object.Key{Kind: object.KindPool, Name: "p"})
	require.Len(t, n.All()["a"].Exclude, 1)
	require.Empty(t, now["a"].Exclude, "what was told before is not changed")
	require.Equal(t, []string{"a"}, Differ(now, n.All()))
	delete(pools, "/p")
	n.Changed(object.Key{Kind: object.KindPool, Name: "p"})
	require.Empty(t, n.All()["a"].Exclude)
}
