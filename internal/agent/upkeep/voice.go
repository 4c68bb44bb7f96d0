package upkeep

import (
	"errors"
	"log/slog"

	"github.com/fairlead/fairlead/internal/core"
)

// Voice says a failure once, however often it is met, and once that it is over.
type Voice struct {
	Log  *slog.Logger
	said string
}

// Hear takes the outcome of an attempt. What is away is so for reasons that
// differ from moment to moment (no socket, nobody behind it): that is one.
func (v *Voice) Hear(err error) {
	said := ""
	switch {
	case errors.Is(err, core.ErrUnavailable):
		said = core.ErrUnavailable.Error()
	case err != nil:
		said = err.Error()
	}
	if said == v.said {
		return
	}
	v.said = said
	if err != nil {
		v.Log.Error("node not in order yet", "err", err)
	} else {
		v.Log.Info("node in order again")
	}
}
