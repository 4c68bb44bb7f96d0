package core

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// CNI error codes (CNI spec 1.1, "Error"); 100 and above are ours and stand in
// the table of package api/cni.
const (
	CodeVersion    uint = 1  // incompatible CNI version
	CodeField      uint = 2  // unsupported field in the configuration
	CodeUnknown    uint = 3  // container unknown or gone: the runtime need not DEL
	CodeEnv        uint = 4  // invalid environment variable
	CodeIO         uint = 5  // I/O failure
	CodeDecode     uint = 6  // content cannot be decoded
	CodeConfig     uint = 7  // invalid network configuration
	CodeNetns      uint = 8  // namespace gone or not a network namespace
	CodeTryAgain   uint = 11 // try again later
	CodeNotReady   uint = 50 // STATUS: cannot serve ADD
	CodeDenied     uint = 101
	CodeValue      uint = 102
	CodeAddress    uint = 103
	CodeDevice     uint = 104
	CodeConflict   uint = 105
	CodeDrift      uint = 106
	codeUnlabelled uint = 999 // an error nobody gave a code: a defect worth a report
)

// Error is a failure with the CNI code that a runtime will see. Msg says what
// failed, Details why and what to do.
type Error struct {
	Code uint
	// Reason is a word for programs, "" for most errors; Msg begins with it.
	Reason  string
	Msg     string
	Details string
	Err     error // cause, may be nil; its text stands in Details already
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Unwrap gives the cause, so that errors.Is sees sentinels behind a code.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error whose message is the formatted text; a %w operand
// becomes its cause.
func Errorf(code uint, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// Reasons of errors about settings that are declared of pods by name, and of the
// devices that carry them (spec/sriov.md, Errors).
const (
	ReasonInvalidVLAN          = "InvalidVLAN"
	ReasonInvalidMAC           = "InvalidMAC"
	ReasonRateInvalid          = "RateInvalid"
	ReasonDriverCannot         = "DriverCannot"
	ReasonAddressOutsideSubnet = "AddressOutsideSubnet"
	ReasonOrdinalOutOfRange    = "OrdinalOutOfRange"
	ReasonAddressHeld          = "AddressHeld"
	ReasonAddressConflict      = "AddressConflictOnWire"
	ReasonFenced               = "NodeFenced"
	ReasonMACInUse             = "MACInUse"
	ReasonAmbiguousDeclaration = "AmbiguousDeclaration"
	ReasonAnnotationConflict   = "AnnotationConflict"
	ReasonAnnotationForbidden  = "AnnotationForbidden"
	ReasonNoDeviceRequested    = "NoDeviceRequested"
	ReasonNoVFMatches          = "NoVFMatches"
	ReasonVFDirty              = "VFDirty"
	ReasonMinRate              = "MinRateOversubscribed"
	ReasonRestartNeeded        = "RestartNeeded"
)

// Reasoned is Errorf with a reason, with which its message begins.
func Reasoned(code uint, reason, format string, args ...any) *Error {
	e := Errorf(code, reason+": "+format, args...)
	e.Reason = reason
	return e
}

// WireConflict is that somebody on the network answers for an address.
type WireConflict struct {
	Addr   netip.Addr
	MAC    string // who answers
	IfName string // that was to have it
}

// Error implements error.
func (c *WireConflict) Error() string {
	return fmt.Sprintf("MAC %s answers for address %s, which interface %s is to have to itself", c.MAC, c.Addr, c.IfName)
}

// ReasonOf is the reason of err, "" where it has none.
func ReasonOf(err error) string {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Reason != "" || e.Err == nil {
			return e.Reason
		}
	}
	return ""
}

// blamed is an error with the objects that declare what it refuses.
type blamed struct {
	error

	objects []string
}

func (b *blamed) Unwrap() error { return b.error }

// Blame notes on an error that has a reason which objects declare what it refuses, each as
// "Kind namespace/name" with more behind a comma; an error that knows better keeps its own.
func Blame(err error, objects ...string) error {
	if ReasonOf(err) == "" || len(objects) == 0 || len(Blamed(err)) > 0 {
		return err
	}
	return &blamed{err, objects}
}

// Blamed are the objects that declare what err refuses.
func Blamed(err error) []string {
	if b := (*blamed)(nil); errors.As(err, &b) {
		return b.objects
	}
	return nil
}

// WithCode puts a code and a heading on err; an Error inside err keeps its own
// code. WithCode(nil) is nil.
func WithCode(code uint, msg string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		code = e.Code
	}
	return &Error{Code: code, Msg: msg, Details: err.Error(), Err: err}
}

// CodeOf is the CNI code of err: its own, else that of a sentinel, else 999.
func CodeOf(err error) uint {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	for _, s := range sentinelCodes {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return codeUnlabelled
}

// Sentinels, made once at the place where a kernel or database error is seen.
var (
	// ErrNotFound: the thing named does not exist (pod, NAD, link, port).
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken by somebody else's thing.
	ErrExists = errors.New("already exists")
	// ErrDrift: what is there is not what was made (CHECK).
	ErrDrift = errors.New("drift")
	// ErrNetnsGone: the namespace was removed, or its path now names another.
	ErrNetnsGone = errors.New("network namespace is gone")
	// ErrUnavailable: a server that we need (OVSDB, API) cannot be reached now.
	ErrUnavailable = errors.New("unavailable")
	// ErrExhausted: no free address is left.
	ErrExhausted = errors.New("no free address")
	// ErrHeld: a requested address or MAC belongs to somebody else.
	ErrHeld = errors.New("held")
)

// Difference is one thing that a CHECK found not to be as it was made, in
// words; it is ErrDrift. Several are joined.
type Difference string

// Differ makes a Difference of what fmt.Sprintf gives.
func Differ(format string, args ...any) Difference { return Difference(fmt.Sprintf(format, args...)) }

func (d Difference) Error() string { return string(d) }

// Is tells what kind of failure a difference is.
func (d Difference) Is(target error) bool { return target == ErrDrift }

// findings are the lines of a CHECK about one thing.
type findings struct {
	of  string
	err error
}

// About says in every line of err what it is about; nil stays nil.
func About(of string, err error) error {
	if err == nil {
		return nil
	}
	return findings{of, err}
}

func (f findings) Error() string {
	return f.of + ": " + strings.ReplaceAll(f.err.Error(), "\n", "\n"+f.of+": ")
}

func (f findings) Unwrap() error { return f.err }

var sentinelCodes = []struct {
	err  error
	code uint
}{
	{ErrNetnsGone, CodeNetns},
	{ErrUnavailable, CodeTryAgain},
	{ErrExhausted, CodeAddress},
	{ErrHeld, CodeAddress},
	{ErrExists, CodeConflict},
	{ErrNotFound, CodeUnknown},
	{ErrDrift, CodeDrift},
	{context.DeadlineExceeded, CodeTryAgain},
	{context.Canceled, CodeTryAgain},
}

// Failure is how a plugin's ADD failed: with the code and the message of its
// answer, or without an answer (Code 0): it hung, died, or was never asked.
type Failure struct {
	Code uint   `json:"code,omitempty"`
	Msg  string `json:"msg,omitempty"`
}
