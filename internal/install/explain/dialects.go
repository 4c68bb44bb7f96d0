package explain

import (
	"context"
	"fmt"
)

// dockershim's rule, and cri-dockerd's: what cannot be parsed, or names a plugin
// that is missing or does not speak the version, is passed over; the first that
// is left wins (kubelet 1.23, getDefaultCNINetwork).
func (e *explanation) dockershim(ctx context.Context) {
	e.firstUsable(ctx, e.candidates())
}

// fairlead's rule is dockershim's, but that hidden files are none, and that a
// network needs a name.
func (e *explanation) fairlead(ctx context.Context) {
	var seen []file
	for _, f := range e.candidates() {
		if hidden(f.name) {
			e.say(f, Ignored, "hidden")
			continue
		}
		seen = append(seen, f)
	}
	e.firstUsable(ctx, seen)
}

func (e *explanation) firstUsable(ctx context.Context, files []file) {
	winner := ""
	for _, f := range files {
		switch err := e.usable(ctx, f); {
		case winner != "":
			e.say(f, Shadowed, "%s comes first%s", winner, e.besides(ctx, f))
		case err != nil:
			e.say(f, Refused, "%s", err)
		default:
			winner = f.name
			e.say(f, Wins, "the first that is usable")
			e.take(ctx, f, "eth0")
		}
	}
	e.Ready = winner != ""
	switch {
	case e.Ready:
		e.Why = winner + " is the first usable file"
	case len(files) == 0:
		e.Why = errNone.Error() + ": a network that was loaded before stays in force until the runtime restarts"
	default:
		e.Why = "no file is usable: a network that was loaded before stays in force until the runtime restarts"
	}
}

// usable is what dockershim and CRI-O ask of a file, and Fairlead.
func (e *explanation) usable(ctx context.Context, f file) error {
	if f.err != nil {
		return f.err
	}
	if e.Runtime == Fairlead {
		if err := ValidName(f.list); err != nil {
			return err
		}
	}
	return e.plugins.check(ctx, f.list)
}

// containerd's rule (go-cni, loadFromConfDir): the first max_conf_num files are
// read, the first that cannot be parsed ends it all, and nobody looks for plugins.
// What was loaded before is forgotten first.
func (e *explanation) containerd(ctx context.Context) {
	files := e.candidates()
	count := len(files)
	if e.s.MaxConfNum > 0 {
		count = min(count, e.s.MaxConfNum)
	}
	for i, f := range files[:count] {
		if f.err != nil {
			e.stopped(files, i)
			return
		}
	}
	for i, f := range files {
		switch {
		case i >= count:
			e.say(f, Unread, "max_conf_num is %d%s", e.s.MaxConfNum, e.besides(ctx, f))
			continue
		case i == 0:
			e.say(f, Wins, "the first by name; containerd does not look for its plugins")
		default:
			e.say(f, Loaded, "pods get it too, as eth%d: max_conf_num is %d", i, e.s.MaxConfNum)
		}
		e.take(ctx, f, fmt.Sprintf("eth%d", i))
	}
	e.Ready = count > 0
	switch count {
	case 0:
		e.Why = errNone.Error() + ": the runtime reports NetworkReady=false, and forgets what it had loaded"
	case 1:
		e.Why = files[0].name + " is the first by name; usable or not, it wins"
	default:
		e.Why = fmt.Sprintf("the first %d files by name: a pod gets all their networks at once, and the addresses of eth0 count", count)
	}
}

// stopped is a load that file number i ends.
func (e *explanation) stopped(files []file, i int) {
	for j, f := range files {
		switch {
		case j < i:
			e.say(f, Shadowed, "it could be used, but %s ends the whole load", files[i].name)
		case j == i:
			e.say(f, Stops, "%s", f.err)
		default:
			e.say(f, Unread, "%s ends the whole load", files[i].name)
		}
	}
	e.Why = files[i].name + " cannot be parsed: containerd then loads nothing, forgets what it had loaded, and reports NetworkReady=false"
}

// crio's rule (ocicni, loadNetworks): all usable files are loaded, by network
// name, the first of each name; the default is the one that crio.conf names, else
// the first.
func (e *explanation) crio(ctx context.Context) {
	files := e.candidates()
	byName := map[string]string{}
	var usable []file
	want := e.s.Default
	for _, f := range files {
		if err := e.usable(ctx, f); err != nil {
			e.say(f, Refused, "%s", err)
			continue
		}
		name := crioName(f)
		if first, twice := byName[name]; twice {
			e.say(f, Shadowed, "%s has the network %q already", first, name)
			continue
		}
		byName[name] = f.name
		usable = append(usable, f)
		if want == "" {
			want = name
		}
	}
	for _, f := range usable {
		ifName := ""
		if name := crioName(f); name == want {
			ifName, e.Ready = "eth0", true
			e.say(f, Wins, "%s", e.crioWhy(f))
		} else {
			e.say(f, Loaded, "its network %q is there by name; a pod does not get it by itself", name)
		}
		e.take(ctx, f, ifName)
		e.Networks[len(e.Networks)-1].Name = crioName(f)
	}
	switch {
	case e.Ready:
		e.Why = e.crioWhy(fileNamed(usable, byName[want])) + ": " + byName[want]
	case e.s.Default != "":
		e.Why = fmt.Sprintf("no usable file has the network %q, which cni_default_network names: the runtime reports NetworkReady=false", e.s.Default)
	case len(files) == 0:
		e.Why = errNone.Error() + ": the runtime reports NetworkReady=false"
	default:
		e.Why = "no file is usable: the runtime reports NetworkReady=false"
	}
}

func (e *explanation) crioWhy(f file) string {
	if e.s.Default != "" {
		return fmt.Sprintf("cni_default_network names its network %q", crioName(f))
	}
	return "the first that is usable"
}

// crioName is the name of a file's network for ocicni.
func crioName(f file) string {
	if f.list.Name == "" {
		return f.name
	}
	return f.list.Name
}

func fileNamed(files []file, name string) (f file) {
	for _, f = range files {
		if f.name == name {
			return f
		}
	}
	return f
}
