package journal

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// Take records a NIC's transfer before anything is done for it. Its network must be new:
// core.ErrExists otherwise. On a full disk it is refused, as Begin is.
func (j *Journal) Take(ctx context.Context, u core.Uplink) error {
	return j.putUplink(ctx, kindTake, u)
}

// Move replaces what is recorded of a network's transfer; core.ErrNotFound when it was
// forgotten meanwhile.
func (j *Journal) Move(ctx context.Context, u core.Uplink) error {
	return j.putUplink(ctx, kindMove, u)
}

// Return drops a transfer whose NIC has all that it had. One that is not there is success.
func (j *Journal) Return(ctx context.Context, network string) error {
	return j.submit(ctx, &op{kind: kindReturn, link: network})
}

func (j *Journal) putUplink(ctx context.Context, k kind, u core.Uplink) error {
	data, err := encode(u)
	if err != nil {
		return fmt.Errorf("journal %s %s: %w", k.name(), u.Network, err)
	}
	return j.submit(ctx, &op{kind: k, link: u.Network, row: row{data: data}})
}

// Uplinks are all transfers, by network.
func (j *Journal) Uplinks() []core.Uplink {
	j.mu.RLock()
	rows := j.mem.bucket(uplinks)
	j.mu.RUnlock()
	out := make([]core.Uplink, 0, len(rows))
	for _, r := range rows {
		var u core.Uplink
		if decode(r.data, &u) == nil {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b core.Uplink) int { return cmp.Compare(a.Network, b.Network) })
	return out
}
