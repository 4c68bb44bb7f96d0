package local

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/lib/filewatch"
)

// audit is how often the folder is read without an event; it costs one stat per
// file.
const audit = 20 * time.Second

// Run follows the folder until ctx ends.
func (s *Source) Run(ctx context.Context) {
	if s.folder == nil {
		<-ctx.Done()
		return
	}
	cfg := filewatch.Config{Paths: filewatch.Path(s.folder.Path()), Period: audit, Log: s.log.With("of", "objects")}
	_ = filewatch.Follow(ctx, cfg, func() error { // it ends with ctx
		_ = s.reload() // a folder that cannot be read is among the Problems already
		return nil
	})
}
