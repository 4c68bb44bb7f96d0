package uplink

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Transfers is what gives and takes NICs; *uplink.Transfers is one.
type Transfers interface {
	Take(ctx context.Context, w uplink.Want) (uplink.Status, error)
	Return(ctx context.Context, network string) error
	Resume(ctx context.Context) error
	All() []core.Uplink
	Strays() []uplink.Want
	Show() ([]uplink.Shown, error)
}

// Config says what a Keeper keeps.
type Config struct {
	Node      string
	Transfers Transfers
	// Underlay is what is declared; an error says that it is not known, and nothing is
	// given or taken then.
	Underlay func() (declare.Underlay, error)
	// Used are VLANs that pods have, which their networks' NICs go on carrying whatever becomes
	// of the Vlan objects.
	Used func(context.Context) []core.Way
	// Tell writes on the Node; nil where there is none.
	Tell func(ctx context.Context, labels, notes map[string]string) error
	// Names are the rules of the machine's packet filter that name a NIC and not its bridge;
	// nil: nobody can tell. Warn has an Event of the Node say something; nil where there is none.
	Names func(ctx context.Context, nic, bridge string) ([]string, error)
	Warn  func(reason, note string)
	Log   *slog.Logger
}

// Pauses: a failure is tried again, ever more rarely, and what no event tells is looked at.
const (
	firstRetry = time.Second
	mostRetry  = 30 * time.Second
	audit      = 30 * time.Second
	calm       = 20 * time.Millisecond // events of one change come together
	resumes    = 40 * time.Second
)

// Keeper keeps a node's NICs where they should be.
type Keeper struct {
	cfg    Config
	poke   chan struct{}
	looked map[string]string // NICs by network for which Names was asked
	lacks  []string          // NICs that networks wanted in vain at the last pass

	mu   sync.Mutex
	fate map[string]error // of networks that are not as they should be
	told *facts           // on the Node, nil before anything was
}

// facts are labels and annotations.
type facts struct{ labels, notes map[string]string }

// New makes a Keeper.
func New(c Config) *Keeper {
	return &Keeper{cfg: c, poke: make(chan struct{}, 1), looked: map[string]string{}, fate: map[string]error{}}
}

// Poke has it look: something changed that it is about.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Resume finishes what a former process or boot left, before anything else: the way to
// whoever could say what is wanted may lead over such a NIC.
func (k *Keeper) Resume(ctx context.Context) {
	if len(k.cfg.Transfers.All()) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, resumes)
	defer stop()
	if err := k.cfg.Transfers.Resume(ctx); err != nil {
		k.cfg.Log.Warn("NICs of provider networks are not all where they were; tried again", "err", err)
	}
}

// Run keeps until ctx ends. NICs stay where they are.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	watch, err := rtnl.NewWatch(nil)
	if err != nil {
		k.cfg.Log.Warn("changes of NICs are seen late", "every", audit, "err", err)
	} else {
		wg.Go(func() {
			if err := watch.Run(ctx, k.Poke); err != nil {
				k.cfg.Log.Warn("changes of NICs are seen late", "every", audit, "err", err)
			}
		})
	}
	retry, waits := firstRetry, false
	for ctx.Err() == nil {
		err := k.pass(ctx)
		if watch != nil {
			was := waits
			if waits = k.aim(watch); waits && !was { // what came before was not heard
				k.Poke()
			}
		}
		wait := audit
		if err != nil {
			wait, retry = retry, min(2*retry, mostRetry)
		} else {
			retry = firstRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-k.poke:
			time.Sleep(calm)
		}
	}
}

// aim has the watch hear of the NICs and bridges. waits tells that a NIC is not there, and that
// the watch hears of all links that come: one that is put back has another index.
func (k *Keeper) aim(w *rtnl.Watch) (waits bool) {
	c, err := rtnl.Open(nil)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	var at rtnl.Aims
	look := func(name string) (gone bool) {
		l, err := c.LinkByName(name)
		if err == nil {
			at.Links = append(at.Links, l.Index)
		}
		return errors.Is(err, core.ErrNotFound)
	}
	for _, u := range k.cfg.Transfers.All() {
		look(u.Bridge)
		at.Come = look(u.Port) || at.Come
	}
	for _, nic := range k.lacks {
		at.Come = look(nic) || at.Come
	}
	if err := w.Aim(at); err != nil {
		k.cfg.Log.Warn("changes of NICs are seen late", "every", audit, "err", err)
	}
	return at.Come
}

// pass makes all so once. Returns come first: a NIC may go from one network to another.
func (k *Keeper) pass(ctx context.Context) error {
	u, err := k.cfg.Underlay()
	if err != nil { // what was given stays, and is kept
		return errors.Join(err, k.cfg.Transfers.Resume(ctx))
	}
	var errs []error
	k.lacks = nil
	choices, wanted := choose(k.cfg.Node, u, k.cfg.Used(ctx)), map[string]choice{}
	for _, c := range choices {
		wanted[c.network] = c
	}
	for _, stray := range k.cfg.Transfers.Strays() { // of which the journal knew: it is recorded, so that it can go back
		if _, ok := wanted[stray.Network]; !ok {
			_, err := k.cfg.Transfers.Take(ctx, stray)
			errs = append(errs, err)
		}
	}
	for _, had := range k.cfg.Transfers.All() {
		if c, ok := wanted[had.Network]; (!ok || c.nic == "") && !slices.Contains(u.Unread, had.Network) {
			err := k.cfg.Transfers.Return(ctx, had.Network)
			k.outcome(had.Network, err)
			errs = append(errs, err)
		}
	}
	say := facts{map[string]string{}, map[string]string{}}
	for _, c := range k.order(choices) {
		errs = append(errs, k.serve(ctx, c, say))
	}
	k.forget(wanted)
	return errors.Join(append(errs, k.tell(ctx, u, say))...)
}

// order has networks come first that have their NIC already: of two that want one it stays,
// and so does a VLAN of a NIC.
func (k *Keeper) order(list []choice) (out []choice) {
	has := map[string]bool{}
	for _, u := range k.cfg.Transfers.All() {
		has[u.Network] = true
	}
	for _, first := range []bool{true, false} {
		for _, c := range list {
			if has[c.network] != first {
				continue
			}
			if !first && c.err == nil {
				c.err = contested(c, list)
			}
			out = append(out, c)
		}
	}
	return out
}

// serve gives one network its NIC and notes what the Node is to say of it.
func (k *Keeper) serve(ctx context.Context, c choice, say facts) error {
	key := c.network + suffix
	if c.err == nil && c.nic == "" {
		say.labels[key+keyExclude] = "true"
		return nil
	}
	if c.err != nil {
		k.outcome(c.network, c.err)
		say.notes[key+keyError] = c.err.Error()
		return nil //nolint:nilerr // to try again changes nothing
	}
	st, err := k.cfg.Transfers.Take(ctx, uplink.Want{Network: c.network, NIC: c.nic, Trunks: c.trunks, Exchanged: c.exchanged, Above: c.above, Make: c.makes})
	k.outcome(c.network, err)
	if err != nil {
		say.notes[key+keyError] = core.Clip(err.Error(), messageLimit)
		if !c.makes { // its own link would come and go with each attempt
			k.lacks = append(k.lacks, c.nic)
		}
		return err
	}
	if c.exchanged { // the bridge is called as the NIC was
		delete(k.looked, c.network)
	} else {
		k.passed(ctx, c.network, st.NIC, st.Bridge)
	}
	say.labels[key+keyReady], say.labels[key+keyInterface], say.labels[key+keyMTU] = "true", c.nic, strconv.Itoa(st.MTU)
	if len(st.Above) > 0 {
		say.labels[key+keyVLANs] = "true"
	}
	return nil
}

// messageLimit is of an annotation, in bytes: it is read by people.
const messageLimit = 1024

// outcome says once what became of a network.
func (k *Keeper) outcome(network string, err error) {
	k.mu.Lock()
	was, had := k.fate[network]
	if err == nil {
		delete(k.fate, network)
	} else {
		k.fate[network] = err
	}
	k.mu.Unlock()
	switch {
	case err != nil && (!had || was.Error() != err.Error()):
		k.cfg.Log.Warn("provider network not served by this node", "network", network, "err", err)
	case err == nil && had:
		k.cfg.Log.Info("provider network is as it should be again", "network", network)
	}
}

// forget drops what is known of networks that are no more.
func (k *Keeper) forget(wanted map[string]choice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.fate, func(network string, _ error) bool { _, ok := wanted[network]; return !ok })
}

// tell writes on the Node what it does not say yet, and takes off it what is so no more.
func (k *Keeper) tell(ctx context.Context, u declare.Underlay, say facts) error {
	if k.cfg.Tell == nil || !u.Node {
		return nil
	}
	same := holds(u.Labels, say.labels) && holds(u.Notes, say.notes)
	if k.told == nil { // a former process may have said more
		same = same && len(ours(u.Labels, keyReady, keyInterface, keyMTU, keyVLANs, keyExclude)) == len(say.labels) && len(ours(u.Notes, keyError)) == len(say.notes)
	} else {
		same = same && maps.Equal(say.labels, k.told.labels) && maps.Equal(say.notes, k.told.notes)
	}
	if !same {
		if err := k.cfg.Tell(ctx, say.labels, say.notes); err != nil {
			return err
		}
	}
	k.told = &say
	return nil
}

func holds(have, want map[string]string) bool {
	for key, v := range want {
		if have[key] != v {
			return false
		}
	}
	return true
}

// ours are the keys of a Node that end so behind a network's name.
func ours(have map[string]string, ends ...string) (out []string) {
	for key := range have {
		if _, end, ok := strings.Cut(key, suffix); ok && slices.Contains(ends, end) {
			out = append(out, key)
		}
	}
	return out
}
