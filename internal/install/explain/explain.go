// Package explain tells which CNI configuration a container runtime takes
// from a folder, and why. The runtimes have dialects: what one of them skips ends
// the search of another. Of each file it says what becomes of it, of each network
// what would make its pods fail, and of each kind of change who hears it.
//
// It reads files and looks plugins up; it changes nothing, knows no agent, and
// starts no program but by the function that it is given. The dialects are held
// against the runtimes' own code in test/conf; Fairlead's own code reads its
// files by this package.
//
// Sources: go-cni 1.1 and containerd 2.3 (cni_conf_syncer), ocicni 0.4, kubelet
// 1.23 and cri-dockerd 0.3 (dockershim), libcni 1.3; spec/runtime.md sections 0, A.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Dialect is how a runtime chooses.
type Dialect string

// The dialects.
const (
	Dockershim Dialect = "dockershim" // kubelet to 1.23 with Docker, and cri-dockerd
	Containerd Dialect = "containerd"
	CRIO       Dialect = "cri-o"
	Fairlead   Dialect = "fairlead" // `fairlead cri`, with kubelet or without
)

// Dialects are all of them, in the order of reports.
func Dialects() []Dialect { return []Dialect{Dockershim, Containerd, CRIO, Fairlead} }

// Settings are what a runtime's own configuration says about networks.
type Settings struct {
	Dir string // configurations; those of plugins are the Plugins'
	// MaxConfNum is containerd's max_conf_num: how many files, 0 for all.
	MaxConfNum int
	// Default is CRI-O's cni_default_network, "" for the first.
	Default string
	// CNI is the newest version of CNI that the runtime takes, "" is not known.
	CNI string
}

// Fate is what becomes of a file.
type Fate string

// Fates.
const (
	Wins     Fate = "wins"     // pods get its network as eth0
	Loaded   Fate = "loaded"   // its network is there beside the one that wins
	Shadowed Fate = "shadowed" // usable as far as it goes, and another comes first
	Unread   Fate = "not read" // the runtime ends before it
	Refused  Fate = "refused"  // passed over
	Stops    Fate = "stops"    // refused, and with it every network
	Ignored  Fate = "ignored"  // no configuration by its name or kind
)

// File is one entry of the folder.
type File struct {
	Name string `json:"name"`
	Fate Fate   `json:"fate"`
	Why  string `json:"why"`
	Line int    `json:"line,omitempty"` // from 1, where the JSON is wrong
}

// Plugin is a program that a network runs.
type Plugin struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"` // "" where no folder has it
	// Names are the types that it is told to call itself: IPAM, delegates.
	Names        []string `json:"names,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// Network is one that every pod gets, or may.
type Network struct {
	IfName     string   `json:"ifName,omitempty"` // in the pod; "" is not attached by itself
	Name       string   `json:"name"`
	File       string   `json:"file"`
	CNIVersion string   `json:"cniVersion,omitempty"`
	Plugins    []Plugin `json:"plugins"` // in the order of ADD
	Ours       bool     `json:"ours"`    // Fairlead makes it
	// Problems are why pods would fail although the runtime takes the file.
	Problems []string `json:"problems,omitempty"`
}

// Runs tells that one of the network's plugins is of this type.
func (n Network) Runs(kind string) bool {
	return slices.ContainsFunc(n.Plugins, func(p Plugin) bool { return p.Type == kind })
}

// Choice is what one runtime makes of the folder.
type Choice struct {
	Runtime Dialect  `json:"runtime"`
	Dir     string   `json:"dir"`
	BinDirs []string `json:"binDirs"`
	// Ready tells that the runtime has a network for its pods after reading the
	// folder afresh; Why says it in words, and what there is otherwise.
	Ready    bool      `json:"ready"`
	Why      string    `json:"why"`
	Networks []Network `json:"networks"`
	Files    []File    `json:"files"`
	Changes  []Change  `json:"changes"`
}

// Winner is the network that pods get as eth0, nil without one.
func (c Choice) Winner() *Network {
	if !c.Ready {
		return nil
	}
	i := slices.IndexFunc(c.Networks, func(n Network) bool { return n.IfName == "eth0" })
	if i < 0 {
		return nil
	}
	return &c.Networks[i]
}

// With gives the files of a fate.
func (c Choice) With(fate Fate) (files []File) {
	for _, f := range c.Files {
		if f.Fate == fate {
			files = append(files, f)
		}
	}
	return files
}

// Explain reads the folder as the runtime would at its start. An error says that
// the folder cannot be read; one that is not there is empty.
func Explain(ctx context.Context, d Dialect, s Settings, plugins *Plugins) (Choice, error) {
	files, err := readDir(s.Dir)
	if err != nil {
		return Choice{}, fmt.Errorf("read %s: %w", s.Dir, err)
	}
	for _, f := range files {
		f.asReadBy(s.CNI)
	}
	e := &explanation{
		Choice: Choice{Runtime: d, Dir: s.Dir, BinDirs: plugins.dirs, Networks: []Network{}, Files: []File{}, Changes: changes(d)},
		s:      s, files: files, plugins: plugins,
	}
	choose, ok := map[Dialect]func(context.Context){
		Dockershim: e.dockershim, Containerd: e.containerd, CRIO: e.crio, Fairlead: e.fairlead,
	}[d]
	if !ok {
		return Choice{}, fmt.Errorf("%q is none of the runtimes %v", d, Dialects())
	}
	choose(ctx)
	e.ignored()
	slices.SortStableFunc(e.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return e.Choice, ctx.Err()
}

// explanation is a Choice that is being made.
type explanation struct {
	Choice
	s       Settings
	files   []file
	plugins *Plugins
}

// candidates are the files that libcni takes for configurations, by name.
func (e *explanation) candidates() (out []file) {
	for _, f := range e.files {
		if f.ignored == "" {
			out = append(out, f)
		}
	}
	return out
}

func (e *explanation) say(f file, fate Fate, format string, args ...any) {
	e.Files = append(e.Files, File{Name: f.name, Fate: fate, Why: fmt.Sprintf(format, args...), Line: f.line})
}

// take adds a file's network; ifName is what pods call it.
func (e *explanation) take(ctx context.Context, f file, ifName string) {
	e.Networks = append(e.Networks, e.network(ctx, f, ifName))
}

// besides is what is wrong with a file that another one shadows, for the day on
// which that one goes.
func (e *explanation) besides(ctx context.Context, f file) string {
	err := f.err
	if err == nil {
		err = e.plugins.check(ctx, f.list)
	}
	if err == nil {
		return ""
	}
	return "; it could not be used either: " + err.Error()
}

// ignored tells of what no runtime takes for a configuration. A folder that has
// the name of a network belongs to it (libcni 1.3).
func (e *explanation) ignored() {
	owner := map[string]string{}
	for _, f := range e.candidates() {
		if f.err == nil && f.folder {
			owner[f.list.Name] = f.name
		}
	}
	for _, f := range e.files {
		if f.ignored == "" {
			continue
		}
		why := f.ignored
		if of := owner[f.name]; f.dir && of != "" {
			why = "a folder: its *.conf are plugins of the network in " + of + " (libcni 1.3: containerd 2.1 and later)"
		}
		e.say(f, Ignored, "%s", why)
	}
}

// errNone is the reason of a folder without anything to choose from.
var errNone = errors.New("no file ends in .conf, .conflist or .json")
