package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fairlead/fairlead/internal/core"
)

// DefaultLease is how long a leader that renews its Lease no more is waited for.
const DefaultLease = 15 * time.Second

// answerLimit bounds one request about the Lease, and one proof that the
// northbound database answers.
const answerLimit = 3 * time.Second

// Election says which Lease decides who of several controllers leads.
type Election struct {
	Namespace, Name string // of the Lease
	ID              string // of this candidate; no other has it
	// Lease is how long a leader that renews no more is waited for; whole
	// seconds, 0 = DefaultLease.
	Lease time.Duration
	// Reach proves that this candidate reaches the northbound database now.
	Reach func(context.Context) error
	// Lead leads until its context ends, or earlier when it cannot go on; the
	// Lease is given back then.
	Lead func(context.Context)
	Log  *slog.Logger
}

// Elect takes part in an election until ctx ends. A candidate takes the Lease,
// and a leader renews it, only after Reach succeeded: one that lost the database
// is replaced by one that reaches it. While none does, the leader stays what it
// is, since what needs the Kubernetes API alone can go on.
func Elect(ctx context.Context, config *rest.Config, e Election) error {
	e.Lease = cmp.Or(e.Lease, DefaultLease)
	config = rest.CopyConfig(config)
	config.Timeout = answerLimit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of the API server: %w", err)
	}
	for ctx.Err() == nil {
		if err := e.once(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// once waits until this candidate is elected, and leads until that ends.
func (e Election) once(ctx context.Context, client kubernetes.Interface) error {
	ctx, resign := context.WithCancel(ctx)
	defer resign()
	var leading sync.Mutex // held while Lead runs
	over := false          // the elector has ended
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: e.Name,
		Lock: &lock{reach: e.Reach, log: e.Log, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.ID},
		}},
		LeaseDuration: e.Lease, RenewDeadline: e.Lease * 2 / 3, RetryPeriod: e.Lease / 8,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			// Called in a goroutine that the elector does not wait for: it may even
			// begin after the elector has ended.
			OnStartedLeading: func(ctx context.Context) {
				leading.Lock()
				defer leading.Unlock()
				if over {
					return
				}
				e.Log.Info("this controller leads", "id", e.ID)
				e.Lead(ctx)
				resign()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(id string) {
				if id != e.ID {
					e.Log.Info("another controller leads", "id", id)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	elector.Run(ctx)
	leading.Lock()
	defer leading.Unlock()
	over = true
	return nil
}

// lock is a Lease that only a candidate which reaches the database may take or
// renew. The elector calls its methods one after another.
type lock struct {
	resourcelock.Interface
	reach  func(context.Context) error
	holder string // as the API server told it last
	lost   bool   // the database did not answer the last time
	log    *slog.Logger
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = r.HolderIdentity
	}
	return r, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := l.reached(ctx); err != nil {
		return err
	}
	return l.write(r, l.Interface.Create(ctx, r))
}

// Update implements resourcelock.Interface. A record without holder gives the
// Lease back.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		err := l.giveBack(ctx, r)
		if !apierrors.IsConflict(err) {
			return err
		}
		// A renewal that was given up may have been written, or another candidate's.
		if _, _, err := l.Get(ctx); err != nil {
			return err
		}
		return l.giveBack(ctx, r)
	}
	unreached := l.reached(ctx)
	if unreached == nil {
		return l.write(r, l.Interface.Update(ctx, r))
	}
	// The Lease is left to run out. Until somebody who reaches the database has
	// taken it, whoever led last leads.
	if _, _, err := l.Get(ctx); err != nil {
		return err
	}
	if l.holder != l.Identity() {
		return unreached
	}
	return nil
}

// giveBack writes the record without holder, unless another has the Lease.
func (l *lock) giveBack(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.holder != l.Identity() {
		return fmt.Errorf("the Lease is %s's by now: %w", l.holder, core.ErrExists)
	}
	return l.write(r, l.Interface.Update(ctx, r))
}

func (l *lock) write(r resourcelock.LeaderElectionRecord, err error) error {
	if err == nil {
		l.holder = r.HolderIdentity
	}
	return err
}

// reached is nil when the database answers now.
func (l *lock) reached(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err := l.reach(ctx)
	if was := l.lost; was != (err != nil) {
		l.lost = err != nil
		if l.lost {
			l.log.Warn("the northbound database does not answer: another controller that reaches it may lead", "err", err)
		} else {
			l.log.Info("the northbound database answers again")
		}
	}
	return err
}
