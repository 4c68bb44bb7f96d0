package ovn

import (
	"errors"
	"fmt"
)

// ErrFenced tells that this client may not write: it did not take the
// database, or another took it since. Nothing was changed.
var ErrFenced = errors.New("another controller leads (the epoch in the northbound database is not ours)")

// MissingError tells that a row needs another that is not there. Nothing of the
// Set was changed; when the other row comes, the same Set succeeds.
type MissingError struct {
	Table, Key string // the row that is not there
	For        string // the row that needs it
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: %s %s is not in the northbound database", e.For, e.Table, e.Key)
}

// TakenError tells that a row's key or name is another's.
type TakenError struct {
	Table, Key string
	Owner      string // "" is somebody else than Fairlead
}

func (e *TakenError) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = "somebody else, without Fairlead's mark"
	}
	return fmt.Sprintf("%s %s belongs to %s", e.Table, e.Key, owner)
}

// UnsupportedError tells that a Set uses what this version of OVN does not
// have. Client.Has asks beforehand.
type UnsupportedError struct{ Table, Column string } // Column "" is the whole table

func (e *UnsupportedError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("this version of OVN has no table %s", e.Table)
	}
	return fmt.Sprintf("this version of OVN has no column %s in %s", e.Column, e.Table)
}
