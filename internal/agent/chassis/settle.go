package chassis

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/rows"
	"github.com/fairlead/fairlead/internal/source/cluster/identity"
)

// Settle has ovn-controller compute all flows anew, once for each claim of the node's
// own port (ovs.Client.Claim), and is nil when it has.
//
// The way out of the node's pods depends on it: policies whose match has
// is_chassis_resident of that port. ovn-controller (23.03, lflow.c) evaluates it by
// what the southbound database has said. A flow that comes between its claim and the
// database's answer is left out, and the answer does not bring it back: of ports, only
// those that are new or gone make it look at a flow again. A relay, and a database of
// several members, answer what it asks after the claim before the claim itself. It
// has the answer when the port is up there: it writes one thing after the other.
func (k *Keeper) Settle(ctx context.Context, claim, port string) error {
	ids, err := k.cfg.Switch.IDs()
	if err != nil || ids[idSettled] == claim {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if err := k.up(ctx, ids[idRemote], port); err != nil {
		return fmt.Errorf("claim of port %s: %w", port, err)
	}
	_, err = Ask(ctx, k.cfg.RunDir, "inc-engine/recompute")
	if errors.Is(err, core.ErrNotFound) && strings.HasPrefix(ids[idRemote], "unix:") {
		return nil // a machine's own database answers in order, but for what northd writes in that moment
	}
	if err != nil {
		return fmt.Errorf("ovn-controller not told to compute its flows anew (--ovn-rundir): %w", err)
	}
	_, err = k.cfg.Switch.SetIDs(ctx, func(map[string]string) map[string]string { return map[string]string{idSettled: claim} })
	return err
}

var errClaim = errors.New("the southbound database has not taken it yet")

// up is nil when the southbound database has a port as claimed and up.
func (k *Keeper) up(ctx context.Context, remote, port string) error {
	at := rows.Place{Endpoint: remote}
	if strings.Contains(remote, "ssl:") {
		file := func(name string) string { return filepath.Join(k.cfg.Keys, name) }
		at.TLS = rows.TLS{Key: file(identity.KeyFile), Certificate: file(identity.CertFile), CA: file(identity.CAFile)}
	}
	db, err := rows.Open(ctx, rows.Southbound, at, false)
	if err != nil {
		return fmt.Errorf("southbound database: %w", err)
	}
	defer db.Close()
	found, err := db.Select(ctx, "Port_Binding", []string{"chassis", "up"}, rows.Is("logical_port", port))
	if err != nil {
		return fmt.Errorf("southbound database: %w", err)
	}
	if len(found) == 0 || rows.Text(found[0]["chassis"]) == "" || !rows.Yes(found[0]["up"]) {
		return errClaim
	}
	return nil
}
