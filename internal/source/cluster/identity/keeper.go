// Package identity keeps the files by which a node's ovn-controller shows the
// southbound database who it is, and by which it knows that database: a key that
// never leaves the node, a certificate of the controller's, and the CAs of the
// database. It asks for the certificate in time, and anew when the CAs change,
// which it hears by a watch. It knows nothing of OVN, and of the API server no
// more than package login.
package identity

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Config says whose files are kept, where, and by whose leave.
type Config struct {
	Node      string // the chassis' name too
	Dir       string
	Namespace string // Fairlead's own
	Login     func() (login.Login, error)
	Log       *slog.Logger
}

const (
	// signs is how long a request waits for the controller before a new one is made.
	signs = 15 * time.Minute
	// Pauses between two attempts.
	firstPause, longestPause = time.Second, time.Minute
	// hears is the pause between two watches of the CAs.
	hears = time.Second
)

var (
	errNone = errors.New("none was issued")
	errCAs  = errors.New("the controller has not published its CA (ConfigMap " + fairlead.CAName + "): does fairlead-controller run?")
)

// Keeper keeps them.
type Keeper struct {
	cfg   Config
	store store
	poke  chan struct{} // the CAs changed
	term  retry.Term    // of the certificate in force

	mu    sync.Mutex
	cas   string // digest of the CAs, "" while they are not known
	why   error  // why the last attempt failed, nil for no failure
	waits string // the request that nobody has decided on
}

// New makes a Keeper; Run has it work.
func New(c Config) *Keeper {
	return &Keeper{cfg: c, store: store{c.Dir}, poke: make(chan struct{}, 1)}
}

// Err is nil while there is a certificate to show; else it says why not.
func (k *Keeper) Err() error {
	_, err := k.store.usable(k.cfg.Node)
	if err == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		err = k.why
	}
	waits := ""
	if k.waits != "" {
		waits = "; request " + k.waits + " waits for fairlead-controller to sign it"
	}
	return fmt.Errorf("no certificate for this chassis yet: %w%s", err, waits)
}

// Run keeps the files until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.followCAs(ctx) })
	pause := firstPause
	select { // who has just started need not wonder that they are not known
	case <-ctx.Done():
	case <-k.poke:
	case <-time.After(firstPause):
	}
	for ctx.Err() == nil {
		wait, err := k.due()
		if err == nil && wait <= 0 {
			err = k.renew(ctx)
		}
		if err == nil {
			pause = firstPause
			k.blame(nil)
		} else if ctx.Err() == nil {
			k.blame(err)
			wait, pause = pause, min(2*pause, longestPause)
		}
		select {
		case <-ctx.Done():
		case <-k.poke:
			pause = firstPause
		case <-time.After(wait):
		}
	}
}

// due is in which time a certificate is to be asked for, not after 0 for now.
func (k *Keeper) due() (time.Duration, error) {
	k.mu.Lock()
	cas := k.cas
	k.mu.Unlock()
	if cas == "" {
		return 0, errCAs
	}
	leaf, err := k.store.usable(k.cfg.Node)
	if err != nil || !k.store.askedUnder(cas) {
		return 0, nil //nolint:nilerr // what cannot be used is replaced
	}
	return login.Renewing(&k.term, leaf), nil
}

// blame notes why there is no certificate, and says it once.
func (k *Keeper) blame(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && (k.why == nil || k.why.Error() != err.Error()) {
		k.cfg.Log.Warn("chassis' certificate not issued: it is asked for again", "err", err)
	}
	k.why = err
}

// wait notes the request that is undecided, "" for none.
func (k *Keeper) wait(request string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waits = request
}

// renew gets one certificate. While it waits it may be told of other CAs: then the
// next pass asks once more.
func (k *Keeper) renew(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, signs)
	defer stop()
	k.mu.Lock()
	cas := k.cas
	k.mu.Unlock()
	l, err := k.cfg.Login()
	if err != nil {
		return err
	}
	ask := login.Ask{Name: k.cfg.Node, Group: fairlead.OrganizationChassis, Signer: fairlead.SignerChassis}
	got, err := login.Request(ctx, l, ask, func(request string) {
		k.cfg.Log.Info("chassis' certificate requested", "request", request)
		k.wait(request)
	})
	k.wait("")
	if err != nil {
		return err
	}
	if err := k.store.put(got, cas); err != nil {
		return fmt.Errorf("store the certificate: %w", err)
	}
	k.cfg.Log.Info("chassis' certificate issued", "dir", k.cfg.Dir)
	return nil
}

// followCAs hears of the CAs until ctx ends.
func (k *Keeper) followCAs(ctx context.Context) {
	path := "/api/v1/namespaces/" + k.cfg.Namespace + "/configmaps"
	said := ""
	for ctx.Err() == nil {
		l, err := k.cfg.Login()
		if err == nil {
			err = login.Follow(ctx, l, path, fairlead.CAName, k.heard)
		}
		if err != nil && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			k.cfg.Log.Warn("the controller's CA is not followed; tried again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(hears):
		}
	}
}

// heard takes the CAs. What went, or is no certificate, leaves those that were: one
// that is deleted by mistake would cut off each chassis at its next connection.
func (k *Keeper) heard(_ string, object []byte) (enough bool, err error) {
	var o struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return false, err
	}
	central := o.Data[fairlead.BundleCentral]
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(central)) {
		k.cfg.Log.Warn("no certificate in the controller's ConfigMap: the CAs stay those that were", "configmap", fairlead.CAName, "key", fairlead.BundleCentral)
		return false, nil
	}
	if err := k.store.trust([]byte(central)); err != nil {
		return false, fmt.Errorf("store the CA: %w", err)
	}
	cas := digest(central, o.Data[fairlead.BundleChassis])
	k.mu.Lock()
	was := k.cas
	k.cas = cas
	k.mu.Unlock()
	if was != cas {
		select {
		case k.poke <- struct{}{}:
		default:
		}
	}
	return false, nil
}
