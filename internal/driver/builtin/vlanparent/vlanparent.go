// Package vlanparent is VLAN links of the machine that pods' links stand on: each is made
// for the first pod that needs it and removed after the last. One that somebody else has
// made, or made a link on, is used and left alone. It keeps a file for each pod's link, until the machine ends,
// and knows no kind of link above.
package vlanparent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// Dir is where the machine's marks are. They end with it, as links do.
const Dir = "/run/fairlead/vlan"

// alias marks links that were made here.
const alias = "fairlead: VLAN of pods"

// Parents gives VLAN links; make it with New. Its methods may be called from any goroutine.
type Parents struct {
	dir  string
	turn keylock.Queue
}

// New makes Parents with the marks in a folder.
func New(dir string) *Parents { return &Parents{dir: dir} }

// mark is that a pod's link stands, or is to stand, on a VLAN link.
type mark struct {
	Owner  core.Key `json:"owner"`
	Parent string   `json:"parent"`
}

func (p *Parents) file(owner core.Key) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner.Container + "/" + owner.IfName)) // never fails
	return filepath.Join(p.dir, fmt.Sprintf("%016x.json", h.Sum64()))
}

// Take gives the link of VLAN id, 1 to 4094, on a device, for a pod's link; it is up where
// it was made here. It may be called again. The pod's link must not be made before.
func (p *Parents) Take(ctx context.Context, host *rtnl.Conn, lower rtnl.Link, id int, owner core.Key) (rtnl.Link, error) {
	unlock, err := p.turn.Lock(ctx, "")
	if err != nil {
		return rtnl.Link{}, err
	}
	defer unlock()
	l, ok, err := Find(host, lower, id)
	if err != nil {
		return l, err
	}
	name := l.Name
	if !ok {
		if name, err = free(host, lower, id); err != nil {
			return l, err
		}
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return l, err
	}
	if err := recordfile.Save(p.file(owner), mark{owner, name}); err != nil {
		return l, err
	}
	fail.Here("vlanparent.marked")
	if !ok {
		if l, err = host.NewVLAN(rtnl.VLAN{Name: name, Lower: lower.Index, ID: id, Alias: alias}); err != nil {
			return l, errors.Join(err, p.drop(host, owner))
		}
		fail.Here("vlanparent.made")
	}
	if l.Alias == alias && !l.Up {
		err = host.SetUp(l.Index)
	}
	return l, err
}

// Find gives the link of that VLAN on a device, whoever made it.
func Find(host *rtnl.Conn, lower rtnl.Link, id int) (l rtnl.Link, ok bool, err error) {
	all, err := host.Links()
	if err != nil {
		return l, false, err
	}
	at := slices.IndexFunc(all, func(l rtnl.Link) bool {
		unfinished := l.Alias == "" && strings.HasPrefix(l.Name, rtnl.Drafts)
		return l.Kind == rtnl.KindVLAN && l.Lower == lower.Index && l.PeerNetnsID < 0 && l.VLAN == id && l.VLANProtocol != proto8021AD && !unfinished
	})
	if at < 0 {
		return l, false, nil
	}
	return all[at], true, nil
}

const proto8021AD = 0x88a8

// free is a name that a link of the VLAN can have: DEVICE.ID, unless that is too long or
// another link's.
func free(host *rtnl.Conn, lower rtnl.Link, id int) (string, error) {
	name := fmt.Sprintf("%s.%d", lower.Name, id)
	if len(name) <= rtnl.NameLimit {
		_, err := host.LinkByName(name)
		if errors.Is(err, core.ErrNotFound) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(lower.Name))
	return fmt.Sprintf("vl%08x.%d", h.Sum32(), id), nil
}

// Leave is called when the pod's link is gone, or will never be. Whoever has not taken any
// is success.
func (p *Parents) Leave(ctx context.Context, host *rtnl.Conn, owner core.Key) error {
	unlock, err := p.turn.Lock(ctx, "")
	if err != nil {
		return err
	}
	defer unlock()
	return p.drop(host, owner)
}

// drop removes the VLAN link, if it was made here and nobody else stands on it, and then the
// mark: until then another Leave would remove it.
func (p *Parents) drop(host *rtnl.Conn, owner core.Key) error {
	var own mark
	ok, err := recordfile.Load(p.file(owner), &own)
	if err != nil || !ok {
		return err
	}
	if draft, err := host.LinkByName(rtnl.Draft(own.Parent)); err == nil { // of an agent that died
		if err := host.DelLink(draft.Index); err != nil {
			return err
		}
	}
	l, err := host.LinkByName(own.Parent)
	switch {
	case errors.Is(err, core.ErrNotFound):
	case err != nil:
		return err
	case p.last(own) && l.Kind == rtnl.KindVLAN && l.Alias == alias:
		if err := leave(host, l); err != nil {
			return err
		}
	}
	fail.Here("vlanparent.removed")
	return recordfile.Remove(p.file(owner))
}

// leave removes a VLAN link, unless somebody of this namespace has made a link on it.
func leave(host *rtnl.Conn, l rtnl.Link) error {
	all, err := host.Links()
	if err != nil || slices.ContainsFunc(all, func(upper rtnl.Link) bool { return upper.Lower == l.Index && upper.PeerNetnsID < 0 }) {
		return err
	}
	return host.DelLink(l.Index)
}

// last tells that nobody else stands on the link. A mark that cannot be read may be anybody's.
func (p *Parents) last(own mark) bool {
	files, _ := filepath.Glob(filepath.Join(p.dir, "*.json")) // the pattern is a good one
	return !slices.ContainsFunc(files, func(file string) bool {
		var m mark
		ok, err := recordfile.Load(file, &m)
		return err != nil || ok && m.Owner != own.Owner && m.Parent == own.Parent
	})
}
