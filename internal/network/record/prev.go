package record

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
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

// Retuned are the specs of a record for a CHECK: plugins behind us in the runtime's
// list may have given the first interface another MAC, which their result says,
// and which our own delegates are to find.
func Retuned(rec core.Record, conf core.Conf) []core.Spec {
	if conf.PrevResult == nil {
		return rec.Specs
	}
	later, err := cniconf.LinkFromResult(conf.PrevResult, rec.Key.IfName)
	if err != nil || len(later.MAC) == 0 {
		return rec.Specs
	}
	out := slices.Clone(rec.Specs)
	for i, s := range out {
		if s.Kind() != core.KindDelegate || s.Key != rec.Key {
			continue
		}
		call := out[i].ChangeExec()
		if len(call.Prev) == 0 && i < len(rec.Links) {
			call.Prev = rec.Links[i].CNIResult
		}
		call.Prev = cniconf.WithMAC(call.Prev, s.Key.IfName, later.MAC)
	}
	return out
}
