// Package node makes a stock node's container runtime use our plugin, and
// puts back what was there: the plugin's binary, and the configuration by which
// the runtime calls it. It says beforehand which configuration would win by that
// runtime's rules, changes nothing where something is in the way, and does not end
// before the runtime itself reports the network ready, or why it is not.
//
// Whatever is replaced is kept, durably, before it is replaced; every step may be
// repeated. Files that others wrote are never removed. It attaches nothing, starts
// no agent and knows no flags.
//
// Source: spec/runtime.md sections 0 and C.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// Agent is the running agent.
type Agent interface {
	Status(context.Context) (agent.Status, error)
	Pods(ctx context.Context, namespace string) (agent.PodList, error)
}

// Config says what is installed where.
type Config struct {
	Socket string // the runtime's, CRI v1
	// Dir and BinDir are the runtime's folders, "" for those that it names.
	Dir, BinDir string
	Places      runtimes.Places // for a runtime that does not tell itself
	StateDir    string          // backup, and what was done
	Plugin      string          // our plugin's binary
	Replace     bool            // another project's plugin of our name
	Name        string          // our configuration's file
	// Conf is our configuration's content, with those of a folder around it or not.
	Conf      func(dir string) ([]byte, error)
	Agent     Agent
	RunPlugin explain.RunPlugin
}

// Node is one node.
type Node struct{ Config }

// New makes a Node; nothing is touched.
func New(c Config) *Node { return &Node{c} }

// pluginType is the type by which our configuration calls the plugin.
const pluginType = "fairlead"

// Runtime is the one found on the node.
type Runtime struct {
	Name    string          `json:"name"` // and version
	Socket  string          `json:"socket"`
	Dialect explain.Dialect `json:"dialect"`
	Dir     string          `json:"dir"`
	BinDirs []string        `json:"binDirs"`
	// Ready is NetworkReady as the runtime itself has it, Reason why not.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
}

// Actions, what becomes of a file.
const (
	Add     = "add"
	Replace = "replace" // what is there is kept in the backup
	Keep    = "keep"    // it is as it should be
	Remove  = "remove"
	Restore = "restore" // from the backup
	Leave   = "leave"   // somebody else's
)

// File is one that is ours to write.
type File struct {
	Path   string `json:"path"`
	Action string `json:"action"`
	Note   string `json:"note,omitempty"`
}

// Block is why nothing is done.
type Block struct {
	What string `json:"what"`
	Next string `json:"next"`
}

// Report says what is there, and what was or would be done. Its keys are an
// interface: `-o json` prints it.
type Report struct {
	Runtime Runtime  `json:"runtime"`
	Before  string   `json:"before,omitempty"` // whose network pods got, and by which file
	Files   []File   `json:"files"`
	Notes   []string `json:"notes,omitempty"`
	Blocks  []Block  `json:"blocks,omitempty"`
	// After is what the runtime makes of the folder with the files in place.
	After explain.Choice `json:"after"`
	Done  bool           `json:"done"`
	// Proven tells that the runtime has attached a pod by it, and detached it.
	Proven bool `json:"proven"`

	network runtimes.Network
	conf    []byte
}

// OK tells that nothing is in the way.
func (r Report) OK() bool { return len(r.Blocks) == 0 }

func (r *Report) block(next, format string, args ...any) {
	r.Blocks = append(r.Blocks, Block{What: fmt.Sprintf(format, args...), Next: next})
}

// Plan looks at the node and says what Install would do. It changes nothing.
func (n *Node) Plan(ctx context.Context) (Report, error) {
	r, err := n.look(ctx)
	if err != nil {
		return r, err
	}
	n.askAgent(ctx, &r)
	if r.conf, err = n.Conf(r.network.Dir); err != nil {
		r.block("name another default network, or write its configuration first", "no configuration of ours for %s: %s", r.network.Dir, err)
		return r, nil
	}
	if err := n.files(&r); err != nil {
		return r, err
	}
	err = n.foresee(ctx, &r)
	return r, err
}

// look finds the runtime, its folders, and what pods get by now.
func (n *Node) look(ctx context.Context) (Report, error) {
	live, err := runtimes.Query(ctx, n.Socket)
	if err != nil {
		return Report{}, err
	}
	var network runtimes.Network
	if live.Network != nil {
		network = *live.Network
	} else if network, err = n.Places.Network(live.Dialect); err != nil {
		return Report{}, err
	}
	network.CNI = live.CNI
	if n.Dir != "" {
		network.Dir = n.Dir
	}
	if n.BinDir != "" {
		network.BinDirs = []string{n.BinDir}
	}
	r := Report{network: network, Files: []File{}, Runtime: Runtime{
		Name: live.Name, Socket: n.Socket, Dialect: live.Dialect, Dir: network.Dir, BinDirs: network.BinDirs, Ready: live.Ready, Reason: live.Reason,
	}}
	now, err := n.explain(ctx, r, network.Dir, network.BinDirs)
	if err != nil {
		return r, err
	}
	r.After, r.Before = now, "none: "+now.Why
	if won := now.Winner(); won != nil {
		r.Before = fmt.Sprintf("%q by %s", won.Name, won.File)
	}
	return r, nil
}

func (n *Node) explain(ctx context.Context, r Report, dir string, bins []string) (explain.Choice, error) {
	s := r.network.Settings
	s.Dir = dir
	return explain.Explain(ctx, r.Runtime.Dialect, s, explain.NewPlugins(bins, n.RunPlugin))
}

// askAgent wants an agent that would serve an ADD: without one every new pod of
// the node would wait.
func (n *Node) askAgent(ctx context.Context, r *Report) {
	s, err := n.Agent.Status(ctx)
	if err != nil {
		r.block("start the agent (systemctl start fairlead), or name its socket with --socket", "%s", err)
		return
	}
	if s.Ready {
		return
	}
	var why []string
	for _, c := range s.Conditions {
		if !c.OK {
			why = append(why, c.Name+": "+c.Reason)
		}
	}
	r.block("fairlead status, fairlead doctor", "the agent is not ready: %s", strings.Join(why, "; "))
}

func (n *Node) confPath(r Report) string   { return filepath.Join(r.network.Dir, n.Name) }
func (n *Node) pluginPath(r Report) string { return filepath.Join(r.network.BinDirs[0], pluginType) }

// files says what becomes of each file.
func (n *Node) files(r *Report) error {
	plugin, err := n.pluginFile(r)
	if err != nil {
		return err
	}
	conf := File{Path: n.confPath(*r), Action: Replace}
	have, err := os.ReadFile(conf.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		conf.Action = Add
	case err != nil:
		return err
	case string(have) == string(r.conf):
		conf.Action = Keep
	}
	r.Files = append(r.Files, plugin, conf)
	return nil
}

func (n *Node) pluginFile(r *Report) (File, error) {
	f := File{Path: n.pluginPath(*r), Action: Replace}
	if !hostfile.OwnPlugin(n.Plugin) {
		r.block("name it with --from", "%s is not Fairlead's plugin", n.Plugin)
		return f, nil
	}
	_, err := os.Lstat(f.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.Action = Add
	case err != nil:
		return f, err
	case !hostfile.OwnPlugin(f.Path):
		f.Note = "another project's"
		if !n.Replace {
			r.block("move it away, or replace it with --replace", "%s is another program", f.Path)
		}
	case hostfile.SameFile(n.Plugin, f.Path):
		f.Action = Keep
	default:
		f.Note = "another version of ours"
	}
	return f, nil
}

// foresee puts our files into copies of the runtime's folders, and asks what it
// would take from them.
func (n *Node) foresee(ctx context.Context, r *Report) error {
	if !r.OK() {
		return nil
	}
	tmp, err := os.MkdirTemp("", "fairlead-install")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dir, bin := filepath.Join(tmp, "net.d"), filepath.Join(tmp, "bin")
	if err := copyFolder(r.network.Dir, dir); err != nil {
		return err
	}
	if err := hostfile.Write(filepath.Join(dir, n.Name), r.conf, 0o644); err != nil {
		return err
	}
	if _, err := hostfile.PutPlugin(n.Plugin, filepath.Join(bin, pluginType), false); err != nil {
		return err
	}
	r.After, err = n.explain(ctx, *r, dir, append([]string{bin}, r.network.BinDirs...))
	if err != nil {
		return err
	}
	r.After.Dir, r.After.BinDirs = r.network.Dir, r.network.BinDirs
	n.judge(r)
	return nil
}

// judge blocks what would not give pods our network.
func (n *Node) judge(r *Report) {
	won, stops := r.After.Winner(), r.After.With(explain.Stops)
	switch {
	case len(stops) > 0:
		r.block("repair or remove "+filepath.Join(r.network.Dir, stops[0].Name), "%s: %s", stops[0].Name, r.After.Why)
	case won == nil:
		r.block("fairlead conf explain -o wide", "%s would have no network: %s", r.Runtime.Dialect, r.After.Why)
	case won.File != n.Name && r.network.Default != "":
		r.block("take cni_default_network out of crio.conf, and restart CRI-O", "%s would win: %s", won.File, r.After.Why)
	case won.File != n.Name:
		r.block("rename or remove "+filepath.Join(r.network.Dir, won.File), "%s would win: %s", won.File, r.After.Why)
	case len(won.Problems) > 0:
		r.block("see what is said", "pods would fail: %s", strings.Join(won.Problems, "; "))
	}
	if len(r.network.BinDirs) > 0 && r.Runtime.Dialect == explain.Containerd && len(r.After.Networks) > 1 {
		r.Notes = append(r.Notes, fmt.Sprintf("max_conf_num is %d: pods get the networks of %d files", r.network.MaxConfNum, len(r.After.Networks)))
	}
}

// read are the endings of files that a runtime reads.
var read = []string{".conf", ".conflist", ".json"}

// copyFolder copies a folder's configurations, and those of its folders, as their
// content is: links are followed, and one that leads nowhere stays one. Of other
// files, which may be secrets, the names are enough.
func copyFolder(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		a, b := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = copyFolder(a, b)
		} else {
			err = copyFile(a, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return os.Symlink("gone", to)
	case info.IsDir():
		return os.Symlink(".", to)
	case info.Mode().IsRegular() && slices.Contains(read, filepath.Ext(from)):
		return hostfile.Copy(from, to, 0o600)
	}
	return os.WriteFile(to, nil, 0o600)
}
