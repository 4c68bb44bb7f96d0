package record

import (
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// CheckPrev compares the addresses the runtime believes in with the record's.
func CheckPrev(conf core.Conf, rec core.Record) error {
	link, err := cniconf.LinkFromResult(conf.PrevResult, rec.Key.IfName)
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	if err != nil {
		return core.WithCode(core.CodeDecode, "prevResult", err)
	}
	have := map[netip.Prefix]bool{}
	for _, l := range rec.Links {
		for _, a := range l.Addrs {
			have[a] = true
		}
	}
	for _, a := range link.Addrs {
		if !have[a] {
			return core.Difference("prevResult has address " + a.String() + ", which was never given")
		}
	}
	return nil
}
