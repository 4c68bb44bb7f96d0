package inproc

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/internal/core"
)

// CodeOther is what the programs of containernetworking print for everything
// that has no code of its own (types.ErrInternal).
const CodeOther uint = 999

// Refused makes the error of a configuration that cannot be carried out, whatever
// is there: code 7, or the code that err has.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	code := core.CodeConfig
	if e := (*core.Error)(nil); errors.As(err, &e) {
		code = e.Code
	}
	return &core.Error{Code: code, Msg: err.Error(), Err: err}
}

// Fail makes the error of a failed step: with the code that err has, or that of
// a namespace that is gone or of a caller that is, else CodeOther.
func Fail(step string, err error) error {
	if err == nil {
		return nil
	}
	code := CodeOther
	for _, known := range []error{core.ErrNetnsGone, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			code = core.CodeOf(known)
		}
	}
	return core.WithCode(code, step, err)
}
