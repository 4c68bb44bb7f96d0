package cni

import (
	"cmp"
	"context"

	"github.com/fairlead/fairlead/internal/lib/filewatch"
)

// Run looks at the folder when something changes there, and each SyncPeriod:
// nobody tells what a file still lacks. Whatever is chosen is known, and logged,
// before a pod asks for it.
func (p *Plugin) Run(ctx context.Context) {
	follow := filewatch.Config{Paths: filewatch.Path(p.conf.ConfDir), Period: cmp.Or(p.conf.SyncPeriod, SyncPeriod), Log: p.conf.Log}
	_ = filewatch.Follow(ctx, follow, func() error { // ends with ctx alone
		_, _ = p.current(ctx) // told in the log and by Status
		return nil
	})
}
