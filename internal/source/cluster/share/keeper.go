package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	// claimPatience is how long an ADD waits for this node's claim on a Subnet
	// to be written and read back: once for each Subnet.
	claimPatience = 10 * time.Second
	// Pauses between two attempts to write.
	firstPause, longestPause = 500 * time.Millisecond, 15 * time.Second
)

// Site is what a Keeper needs of the cluster.
type Site interface {
	// View is the cluster as it is known now.
	View() View
	// Subnets are those in force, and the names of those that objects declare.
	Subnets() (all []core.Subnet, declared map[string]bool, err error)
	// Write has the Node object say this; it writes nothing where it does. nil
	// has no condition.
	Write(ctx context.Context, c Claims, told *Summary) error
	// Patient ends ctx after limit, and soon while the cluster cannot be reached.
	Patient(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc)
	// Down is why the cluster cannot be reached, nil when it can.
	Down() error
}

// Keeper keeps what the node's own Node object says of the Subnets whose
// addresses it gives, and tells what it may give.
type Keeper struct {
	site Site
	held func(subnet string) []netip.Addr
	log  *slog.Logger
	kick chan struct{}

	// giving is held for reading while an address is given, so that a claim is
	// made smaller only when what was given under it is known.
	giving sync.RWMutex

	mu      sync.Mutex // guards the rest
	started bool
	asked   map[string]bool // Subnets of which a pod wanted an address
	changed chan struct{}   // closed when an answer may be another
	cached  *View           // nil since then
	fault   error           // why the Node object could not be written, nil when it was
	ebb     bool            // an address that is released may change a claim
}

// NewKeeper makes the node's part in its cluster's Subnets; held are the
// addresses of one that this node has given and not taken back.
func NewKeeper(site Site, held func(subnet string) []netip.Addr, log *slog.Logger) *Keeper {
	return &Keeper{site: site, held: held, log: log, kick: make(chan struct{}, 1), asked: map[string]bool{}, changed: make(chan struct{})}
}

// Stir has all answers given anew: the site has changed.
func (k *Keeper) Stir() {
	k.mu.Lock()
	close(k.changed)
	k.changed, k.cached = make(chan struct{}), nil
	k.mu.Unlock()
	k.poke()
}

func (k *Keeper) poke() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Released says that addresses were taken back.
func (k *Keeper) Released() {
	k.mu.Lock()
	ebb := k.ebb
	k.mu.Unlock()
	if ebb {
		k.Stir()
	}
}

// view is the cluster as it is known. It is kept until something changes: a
// large cluster has thousands of nodes.
func (k *Keeper) view() View {
	k.mu.Lock()
	cached, at := k.cached, k.changed
	k.mu.Unlock()
	if cached != nil {
		return *cached
	}
	v := k.site.View()
	k.mu.Lock()
	defer k.mu.Unlock()
	if at == k.changed && v.Unknown == nil {
		k.cached = &v
	}
	return v
}

// Peers are the other nodes as they are known now, see View.
func (k *Keeper) Peers() []Peer { return k.view().Peers() }

// answer is what may be done with a Subnet now, as it is declared now.
func (k *Keeper) answer(s core.Subnet, asked bool) (Answer, View) {
	if all, _, err := k.site.Subnets(); err == nil {
		if i := slices.IndexFunc(all, func(now core.Subnet) bool { return now.Name == s.Name }); i >= 0 {
			s = all[i]
		}
	}
	v := k.view()
	return v.Of(s, k.held(s.Name), asked), v
}

// Share waits until this node may give addresses of a Subnet and tells of which
// parts; none is all of it. Call done when the address is given, or is not to be.
// The error says why it may not, and what to do.
func (k *Keeper) Share(ctx context.Context, s core.Subnet) (within []netip.Prefix, done func(), err error) {
	ctx, stop := k.site.Patient(ctx, claimPatience)
	defer stop()
	for {
		k.giving.RLock()
		changed, fault, started := k.ask(s.Name)
		a, v := k.answer(s, true)
		switch {
		case started && a.Refused != nil && !v.Soon:
			k.giving.RUnlock()
			return nil, nil, a.Refused
		case started && a.Refused == nil && !a.Unclaimed:
			return a.Within, k.giving.RUnlock, nil
		}
		k.giving.RUnlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if a.Refused != nil {
				return nil, nil, a.Refused
			}
			return nil, nil, k.unclaimed(v.Self, s, fault)
		}
	}
}

// unclaimed is why a claim that was needed is not there in time.
func (k *Keeper) unclaimed(node string, s core.Subnet, fault error) error {
	if fault == nil {
		fault = k.site.Down()
	}
	if fault == nil {
		fault = errors.New("the API server has not confirmed it yet")
	}
	return refusal(core.CodeTryAgain, node, s,
		fmt.Sprintf("its Node object does not say yet that it does: %v; the agent needs patch of nodes/status for its own Node (`fairlead install` gives it)", fault))
}

// ask notes that addresses of a Subnet are wanted.
func (k *Keeper) ask(subnet string) (changed chan struct{}, fault error, started bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.asked[subnet] {
		k.asked[subnet] = true
		k.poke()
	}
	return k.changed, k.fault, k.started
}

// Barred is why a Subnet is none of which this node gives or holds addresses,
// nil where it does one of both, or may. It waits for nobody.
func (k *Keeper) Barred(s core.Subnet) error {
	if len(k.held(s.Name)) > 0 {
		return nil
	}
	a, _ := k.answer(s, false)
	return a.Refused
}

// Refusals are why this node gives no addresses, by Subnet.
func (k *Keeper) Refusals() map[string]string {
	out := map[string]string{}
	for name, a := range k.answers() {
		if a.Refused != nil {
			out[name] = a.Refused.Error()
		}
	}
	return out
}

// answers are those for the Subnets that are declared, claimed, wanted or in use.
func (k *Keeper) answers() map[string]Answer {
	all, declared, err := k.site.Subnets()
	if err != nil {
		return nil
	}
	v := k.view()
	claimed := v.Nodes[v.Self].Claims
	out := map[string]Answer{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range all {
		held, asked := k.held(s.Name), k.asked[s.Name]
		if declared[s.Name] || asked || len(held) > 0 || len(claimed[s.Name]) > 0 {
			out[s.Name] = v.Of(s, held, asked)
		}
	}
	return out
}

// Run keeps the Node object until ctx ends. It is called once held knows all
// that an agent before this one has given.
func (k *Keeper) Run(ctx context.Context) {
	k.mu.Lock()
	k.started = true
	k.mu.Unlock()
	k.Stir()
	wait := firstPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.kick:
		}
		err := k.reconcile(ctx)
		k.settle(err)
		if err == nil {
			wait = firstPause
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, longestPause)
		k.poke()
	}
}

// settle notes the outcome of a write, and logs a failure when it begins.
func (k *Keeper) settle(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.fault == nil && !errors.Is(err, core.ErrUnavailable) {
		k.log.Warn("Node object not written; no addresses are given of Subnets that it does not claim", "err", err)
	}
	k.fault = err
}

// reconcile writes what differs: the claims, and the condition.
func (k *Keeper) reconcile(ctx context.Context) error {
	v := k.view()
	self, registered := v.Nodes[v.Self]
	if v.Unknown != nil || !registered {
		return nil //nolint:nilerr // whoever makes it known calls again
	}
	k.giving.Lock()
	answers := k.answers()
	k.giving.Unlock()
	if answers == nil {
		return nil
	}
	claims := k.claims(self.Claims, answers)
	told, any := Summarize(answers)
	if !any || v.OVN { // a controller tells whose addresses they are
		return k.site.Write(ctx, claims, nil)
	}
	return k.site.Write(ctx, claims, &told)
}

// claims are those that the Node object should have. That of a Subnet which is
// not in force stays while addresses of it are held.
func (k *Keeper) claims(have Claims, answers map[string]Answer) Claims {
	out, ebb := Claims{}, false
	for name, a := range answers {
		if len(a.Want) > 0 {
			out[name] = a.Want
		}
		ebb = ebb || a.Conflict || a.Held || len(a.Within) > 0 && len(a.Want) > len(a.Within)
	}
	for name, parts := range have {
		if _, known := answers[name]; !known && len(k.held(name)) > 0 {
			out[name], ebb = parts, true
		}
	}
	k.mu.Lock()
	k.ebb = ebb
	k.mu.Unlock()
	return out
}
