package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

const (
	again = 2 * time.Second  // after credentials that cannot be used
	audit = 10 * time.Second // how often credentials are compared with those in use
)

// Follower knows all leases by a watch, from the first time that somebody asks: which
// addresses are worth a try. Who has one is decided by Bind alone. Its methods may be called
// at the same time, and before Run.
type Follower struct {
	login func() (login.Login, error)
	asked chan struct{}
	ask   func()
	read  chan struct{} // closed when all was read once
	first func()
	now   atomic.Pointer[cache.Store]
}

// NewFollower makes one; Run has it follow.
func NewFollower(as func() (login.Login, error)) *Follower {
	f := &Follower{login: as, asked: make(chan struct{}), read: make(chan struct{})}
	f.ask = sync.OnceFunc(func() { close(f.asked) })
	f.first = sync.OnceFunc(func() { close(f.read) })
	return f
}

// Known waits until all leases were read once; core.ErrUnavailable where ctx ends before.
func (f *Follower) Known(ctx context.Context) error {
	f.ask()
	select {
	case <-f.read:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("AddressLeases are not known yet: %w", core.ErrUnavailable)
	}
}

// Follow has Run follow from now on.
func (f *Follower) Follow() { f.ask() }

// Get is a lease as it was a moment ago; false where it is not known.
func (f *Follower) Get(name string) (Record, bool) {
	now := f.now.Load()
	if now == nil {
		return Record{}, false
	}
	o, is, err := (*now).GetByKey(name)
	l, ok := o.(*v1alpha1.AddressLease)
	if !is || !ok || err != nil {
		return Record{}, false
	}
	return recordOf(l), true
}

// Idle are the chosen addresses' leases that nobody has had since before.
func (f *Follower) Idle(before time.Time) (names []string) {
	now := f.now.Load()
	if now == nil {
		return nil
	}
	for _, o := range (*now).List() {
		if l, ok := o.(*v1alpha1.AddressLease); ok && l.Spec.DeclaredBy == "" && HolderOf(l).IsZero() && l.Status.Since.Time.Before(before) {
			names = append(names, l.Name)
		}
	}
	return names
}

// Declared are the leases of what an object declares for which of says so.
func (f *Follower) Declared(of func(declared string) bool) (out []Record) {
	now := f.now.Load()
	if now == nil {
		return nil
	}
	for _, o := range (*now).List() {
		if l, ok := o.(*v1alpha1.AddressLease); ok && l.Spec.DeclaredBy != "" && of(l.Spec.DeclaredBy) {
			out = append(out, recordOf(l))
		}
	}
	return out
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-f.asked:
	}
	for ctx.Err() == nil {
		l, err := f.login()
		var c *Client
		if err == nil {
			c, err = NewClient(l.REST)
		}
		if err != nil {
			retry.Sleep(ctx, again)
			continue
		}
		f.follow(ctx, c, l)
	}
}

// follow reads with one login until it is another one, or ctx ends. What is known goes on to
// be served until the next has read all.
func (f *Follower) follow(ctx context.Context, c *Client, l login.Login) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	store, control := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(c.leases, resource, "", func(*metav1.ListOptions) {}),
		ObjectType:    &v1alpha1.AddressLease{},
		Handler:       cache.ResourceEventHandlerFuncs{},
		Transform: func(o any) (any, error) {
			if l, ok := o.(*v1alpha1.AddressLease); ok {
				l.ManagedFields = nil
			}
			return o, nil
		},
	})
	wg.Go(func() { control.RunWithContext(ctx) })
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), control.HasSynced) {
			f.now.Store(&store)
			f.first()
		}
	})
	for retry.Sleep(ctx, audit) && !l.Changed() {
	}
}
