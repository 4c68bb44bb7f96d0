package hostdevice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// mark is what is kept of a device while a pod has it, or is to have it: what it was on the
// machine.
type mark struct {
	Owner     core.Key `json:"owner"`
	Name      string   `json:"name"`
	Alias     string   `json:"alias,omitempty"`
	MAC       core.MAC `json:"mac,omitempty"` // nil: not known
	MTU       int      `json:"mtu,omitempty"` // bytes, 0: not known
	Kind      string   `json:"kind,omitempty"`
	Bus       string   `json:"bus,omitempty"`
	Permanent core.MAC `json:"permanent,omitempty"`
	VF        bool     `json:"vf,omitempty"` // of which Permanent may change
}

func (p *Plugin) marked(owner core.Key, l rtnl.Link) mark {
	return mark{
		Owner: owner, Name: l.Name, Alias: l.Alias, MAC: l.MAC, MTU: l.MTU, Kind: l.Kind, Bus: l.Bus, Permanent: l.Permanent,
		VF: p.virtual(l.Bus),
	}
}

// virtual tells a virtual function: its driver may take a MAC that the device is given for
// the one that its maker gave it (igbvf does, whenever it begins anew).
func (p *Plugin) virtual(bus string) bool {
	if bus == "" {
		return false
	}
	_, err := os.Stat(p.sys + pci + bus + "/physfn")
	return err == nil
}

// is tells whether a link is the device, wherever it is and whatever it is called there.
// Hardware is known by where it sits and, as a card may have several, by what its maker gave
// it; what has neither by the alias that it was moved with.
func (m mark) is(l rtnl.Link) bool {
	if m.Bus == "" || l.Bus != m.Bus || l.Kind != m.Kind {
		return m.Bus == "" && l.Kind == m.Kind && l.Alias == m.Name
	}
	return m.VF || slices.Equal(l.Permanent, m.Permanent)
}

// on finds the device on the machine, most often by its name.
func (m mark) on(host *rtnl.Conn) (l rtnl.Link, ok bool, err error) {
	if l, err = host.LinkByName(m.Name); err == nil && m.is(l) {
		return l, true, nil
	}
	all, err := host.Links()
	if at := slices.IndexFunc(all, m.is); err == nil && at >= 0 {
		return all[at], true, nil
	}
	return l, false, err
}

// returns tells that the kernel brings the device back when its namespace ends. Virtual
// ones end with it.
func (m mark) returns() bool { return m.Kind == "" }

// file is that of a mark: DEVICE@OWNER.
func (p *Plugin) file(m mark) string {
	return filepath.Join(p.dir, filepath.Base(m.Name)+"@"+digest(m.Owner)+".json")
}

func digest(owner core.Key) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner.Container + "/" + owner.IfName)) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

func (p *Plugin) mark(m mark) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	return recordfile.Save(p.file(m), m)
}

// marks are all that there are of owners with a digest, "*" for any.
func (p *Plugin) marks(digest string) (all []mark, err error) {
	files, err := filepath.Glob(filepath.Join(p.dir, "*@"+digest+".json"))
	for _, file := range files {
		m := mark{}
		ok, failed := recordfile.Load(file, &m)
		if ok {
			all = append(all, m)
		}
		err = errors.Join(err, failed)
	}
	return all, err
}

// marksOf are those of one owner: one at most, unless it was given another device before
// anybody took the first back.
func (p *Plugin) marksOf(owner core.Key) ([]mark, error) {
	all, err := p.marks(digest(owner))
	return slices.DeleteFunc(all, func(m mark) bool { return m.Owner != owner }), err
}

// back brings the device of a pod back as it was. None is success.
func (p *Plugin) back(ctx context.Context, call driver.PluginCall) error {
	away, err := p.look(ctx, call)
	if err != nil || len(away) == 0 {
		return err
	}
	// The kernel has them still: it ends namespaces one after the other. Other pods' devices
	// do not wait for that.
	err = inproc.Await(ctx, returnLimit, func() (bool, error) {
		away, err = p.look(ctx, call)
		return len(away) == 0, err
	})
	if errors.Is(err, inproc.ErrTimeout) {
		return fmt.Errorf("%s is neither in its pod nor on the machine: a process holds the pod's namespace", away[0].Name)
	}
	return err
}

// look is restore in its turn.
func (p *Plugin) look(ctx context.Context, call driver.PluginCall) (away []mark, err error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	host, err := p.host.Get()
	if err != nil {
		return nil, err
	}
	defer p.host.Put(host)
	return p.restore(host, call)
}

// restore takes what is in the pod out of it, and makes what is on the machine what it was.
// away are devices that will come back.
func (p *Plugin) restore(host *rtnl.Conn, call driver.PluginCall) (away []mark, err error) {
	if err := p.takeOut(host, call); err != nil {
		return nil, err
	}
	fail.Here("hostdevice.back")
	mine, err := p.marksOf(call.Key)
	if err != nil {
		return nil, err
	}
	for _, m := range mine {
		l, ok, failed := m.on(host)
		switch {
		case failed != nil:
			err = errors.Join(err, failed)
		case ok:
			err = errors.Join(err, p.clean(host, l, m))
		case m.returns() && p.exists(m):
			away = append(away, m)
		default: // it ended with its namespace, or its hardware was taken away
			err = errors.Join(err, recordfile.Remove(p.file(m)))
		}
	}
	return away, err
}

// exists tells that the machine has the hardware.
func (p *Plugin) exists(m mark) bool {
	if m.Bus == "" {
		return false
	}
	_, err := os.Stat(p.sys + pci + m.Bus)
	return err == nil
}

// takeOut moves the pod's device to the machine, if the pod is there and has one.
func (p *Plugin) takeOut(host *rtnl.Conn, call driver.PluginCall) error {
	if call.Netns.Path == "" {
		return nil
	}
	pod, err := netns.Verify(call.Netns)
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	conn, err := rtnl.Open(pod)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l, m, err := p.inPod(conn, call.Key)
	if err != nil || l.Index == 0 {
		return err
	}
	home := p.home
	if home == nil {
		if home, err = netns.Current(); err != nil {
			return err
		}
		defer func() { _ = home.Close() }()
	}
	return moveOut(conn, host, l, m, home)
}

// inPod finds the device in the pod, by its mark or, where a program gave it, by the alias
// that this left on it; the mark is made then. No index: there is none.
func (p *Plugin) inPod(conn *rtnl.Conn, owner core.Key) (l rtnl.Link, m mark, err error) {
	mine, err := p.marksOf(owner)
	if err != nil {
		return l, m, err
	}
	all, err := conn.Links()
	if err != nil {
		return l, m, err
	}
	for _, m := range mine {
		if at := slices.IndexFunc(all, m.is); at >= 0 {
			return all[at], m, nil
		}
	}
	at := slices.IndexFunc(all, func(l rtnl.Link) bool { return l.Name == owner.IfName && l.Alias != "" })
	if len(mine) > 0 || at < 0 {
		return l, m, nil
	}
	m = mark{Owner: owner, Name: all[at].Alias, Kind: all[at].Kind, Bus: all[at].Bus, Permanent: all[at].Permanent, VF: p.virtual(all[at].Bus)}
	if len(m.Name) > rtnl.NameLimit {
		return l, m, nil // the user's own alias
	}
	return all[at], m, p.mark(m)
}

// moveOut has the machine see the device under its own name only, as long as the pod has no
// link of that name: who renames devices there is not woken.
func moveOut(conn, host *rtnl.Conn, l rtnl.Link, m mark, home *netns.Handle) error {
	if other, err := host.LinkByName(m.Name); err == nil {
		return fmt.Errorf("link %d of the machine is called %s by now: rename it, so that the device can have its name again", other.Index, m.Name)
	} else if !errors.Is(err, core.ErrNotFound) {
		return err
	}
	if l.Name != m.Name {
		err := conn.Apply(l.Index, rtnl.Change{Name: m.Name, Alias: m.Name, Down: true})
		if err != nil && !errors.Is(err, core.ErrExists) {
			return err
		}
		fail.Here("hostdevice.renamed")
	}
	return conn.Apply(l.Index, rtnl.Change{To: home, Name: m.Name, Alias: m.Name})
}

// clean makes a device on the machine what it was. It is down, as whatever was moved; what
// has no bus is known by its alias, which goes last but the mark.
func (p *Plugin) clean(host *rtnl.Conn, l rtnl.Link, m mark) error {
	if l.Name != m.Name {
		if err := host.SetName(l.Index, m.Name); err != nil {
			return err
		}
	}
	if len(m.MAC) > 0 && !slices.Equal(l.MAC, m.MAC) {
		if err := host.SetMAC(l.Index, m.MAC); err != nil {
			return err
		}
	}
	if mtu := cmp.Or(m.MTU, l.MTU); mtu != l.MTU {
		if err := host.SetMTU(l.Index, mtu); err != nil {
			return err
		}
	}
	if l.Alias != m.Alias {
		if err := host.SetAlias(l.Index, m.Alias); err != nil {
			return err
		}
	}
	fail.Here("hostdevice.clean")
	return recordfile.Remove(p.file(m))
}

// sweep cleans all devices that have a mark and are on the machine: they came back by
// themselves. dirty are those that could not be cleaned.
func (p *Plugin) sweep(host *rtnl.Conn) (dirty []mark, err error) {
	all, err := p.marks("*")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	for _, m := range all {
		l, ok, failed := m.on(host)
		if ok {
			failed = p.clean(host, l, m)
		}
		if failed != nil {
			dirty, err = append(dirty, m), errors.Join(err, failed)
		}
	}
	return dirty, err
}
