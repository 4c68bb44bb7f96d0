package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/internal/core"
)

// indicated is nil when the readiness indicator that the conf names is there.
// Whoever cannot be asked counts as not ready.
func indicated(conf core.Conf) error {
	if conf.ReadinessFile == "" {
		return nil
	}
	_, err := os.Stat(conf.ReadinessFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("readinessindicatorfile %s does not exist: the default network is not ready", conf.ReadinessFile)
	}
	if err != nil {
		return fmt.Errorf("readinessindicatorfile: %w", err)
	}
	return nil
}

// awaitReady returns once the conf's readiness indicator is there, or with code
// 11 when ctx ends first.
func (e *Engine) awaitReady(ctx context.Context, conf core.Conf) error {
	if indicated(conf) == nil {
		return nil
	}
	err := e.awaited.Await(ctx, conf.ReadinessFile)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return core.WithCode(core.CodeTryAgain, "readinessindicatorfile", err)
	case !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("wait for readinessindicatorfile: %w", ctx.Err())
	}
	return core.WithCode(core.CodeTryAgain, "waited in vain", indicated(conf))
}
