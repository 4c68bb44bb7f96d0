package exec

import (
	"errors"
	"syscall"

	"github.com/fairlead/fairlead/internal/core"
)

// answer is an error that a plugin answered a call with, or that its program
// cannot be run at all: code and message say nothing of the verb, so that an
// ADD's can be compared with a DEL's.
type answer struct {
	said  core.Failure
	cause error
}

func (a *answer) Error() string { return a.cause.Error() }
func (a *answer) Unwrap() error { return a.cause }

// refusal makes an answer of why a program is not run.
func refusal(err error) error {
	return &answer{core.Failure{Code: core.CodeOf(err), Msg: err.Error()}, err}
}

// Refused implements driver.Refuser: the plugin's answer goes into the record. One
// that hung or died gave none.
func (d *Driver) Refused(s core.Spec, err error) core.Spec {
	if s.Exec == nil {
		return s
	}
	failed := &core.Failure{}
	if a, ok := errors.AsType[*answer](err); ok && !passing(err) {
		failed = &a.said
	}
	s.ChangeExec().Failed = failed
	return s
}

// nothingMade tells of a DEL that failed that there is nothing to be removed:
// the ADD was answered with an error, and the plugin cannot read its
// configuration (CNI spec 1.1, codes 1, 2, 4, 6 and 7), or says what it said
// then. Otherwise a network that no plugin takes would never go.
func nothingMade(add *core.Failure, del error) bool {
	a, ok := errors.AsType[*answer](del)
	if add == nil || add.Code == 0 || !ok || passing(del) {
		return false
	}
	switch a.said.Code {
	case core.CodeVersion, core.CodeField, core.CodeEnv, core.CodeDecode, core.CodeConfig:
		return true
	}
	return a.said == *add
}

// passing tells an error that says nothing about the configuration or about
// what was made: a resource is short now, or the plugin asks for patience.
func passing(err error) bool {
	for _, short := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EAGAIN, syscall.EIO} {
		if errors.Is(err, short) {
			return true
		}
	}
	return core.CodeOf(err) == core.CodeTryAgain
}
