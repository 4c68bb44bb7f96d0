package leases

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/fairlead/fairlead/internal/agent/elsewhere"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Cluster is what an agent knows of its cluster beside the leases.
type Cluster interface {
	elsewhere.Told
	// Known is what is in memory of a pod of this node: core.ErrNotFound is proof.
	Known(core.Pod) (*resolve.Pod, error)
}

// Node is an agent whose leases are kept.
type Node struct {
	Name, BootID, StateDir string
	Fences                 func(core.Spec) bool // as in Config

	Login func() (login.Login, error)
	API   func() Cluster // nil while there is none
	// Declared tells what is declared of pods.
	Declared resolve.Declarer
	Log      *slog.Logger
}

// ForNode makes the Keeper of an agent.
func ForNode(n Node, store *cluster.Store) *Keeper {
	return New(Config{
		Node: n.Name, BootID: n.BootID, Fences: n.Fences, File: filepath.Join(n.StateDir, "leases.json"), Log: n.Log,
		Store: func() Store {
			if n.API() == nil {
				return nil
			}
			return store
		},
		Seen: cluster.NewFollower(n.Login),
		Gone: func(pod core.Pod) (bool, error) {
			api := n.API()
			if api == nil {
				return false, core.ErrUnavailable
			}
			_, err := api.Known(pod)
			if errors.Is(err, core.ErrNotFound) {
				return true, nil
			}
			return false, err
		},
		Declared: func(ctx context.Context, pod core.Pod, c core.Claim) bool {
			x, err := n.Declared.Declared(ctx)
			return err != nil || x.Says(ctx, pod, c)
		},
		Conflict: func(pod core.Pod, text string) {
			api := n.API()
			if api == nil {
				return
			}
			if text == "" {
				api.Condition(pod, elsewhere.AddressConflict, "False", "Resolved", "")
				return
			}
			api.Condition(pod, elsewhere.AddressConflict, "True", elsewhere.ReasonConflict, text)
			api.Warn(pod, elsewhere.ReasonConflict, text)
		},
	})
}
