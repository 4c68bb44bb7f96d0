package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	agentapi "github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/install/conf"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	nodeclient "github.com/fairlead/fairlead/internal/node/client"
	"github.com/fairlead/fairlead/internal/node/loop"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// besideSocket is a socket in the folder of the agent's.
func (o *Config) besideSocket(name string) string {
	return filepath.Join(filepath.Dir(o.Socket), name)
}

// endpoint is where the node loop finds its runtime.
func (o *Config) endpoint(rt Runtime) string {
	if rt.Endpoint != "" {
		return rt.Endpoint
	}
	return "unix://" + o.besideSocket("cri.sock")
}

// prepare writes down what is up, then makes what the runtime needs to call the
// agent: the plugin, and the folder of its configuration, which the agent writes.
func (o *Config) prepare(r *Record, rt Runtime) (*Record, error) {
	if r == nil {
		r = &Record{Dir: o.Dir, Runtime: rt.Key(), Untried: true}
		if path := filepath.Join(o.ConfDir, conf.Name); !callsUs(o.ConfDir) {
			r.Wrote = append(r.Wrote, path)
		}
		if plugin := filepath.Join(o.BinDirs[0], "fairlead"); !o.hasPlugin() {
			r.Wrote = append(r.Wrote, plugin)
		}
	}
	r.Flags = o.Given
	if err := r.Save(o.StateDir); err != nil {
		return nil, err
	}
	if o.hasPlugin() {
		return r, nil
	}
	self, err := os.Executable()
	from := filepath.Join(filepath.Dir(self), "fairlead-cni")
	if err == nil {
		err = os.MkdirAll(o.BinDirs[0], 0o755)
	}
	if err == nil {
		_, err = hostfile.PutPlugin(from, filepath.Join(o.BinDirs[0], "fairlead"), false)
	}
	if err != nil {
		return nil, hint.On(fmt.Errorf("CNI plugin: %w", err), "`make install`, or put fairlead-cni beside this program")
	}
	return r, nil
}

func (o *Config) hasPlugin() bool {
	for _, dir := range o.BinDirs {
		if hostfile.OwnPlugin(filepath.Join(dir, "fairlead")) {
			return true
		}
	}
	return false
}

// callsUs tells that the runtime's configuration calls Fairlead already. The
// other names that our plugin answers to (core.OwnType) may be their owners'.
func callsUs(dir string) bool {
	types, err := explain.Types(dir)
	return err == nil && slices.Contains(types, pluginType)
}

// list are the process's, in the order of their start, on the pods of a folder.
func (o *Config) list(rt Runtime, r Record, pods string, log *slog.Logger) []Part {
	network := o.agent(log.With("part", "agent"))
	if slices.Contains(r.Wrote, filepath.Join(o.ConfDir, conf.Name)) {
		network.CNIConf = agent.ConfAuto
	}
	all := []Part{{Name: "agent", Run: func(ctx context.Context) error { return o.Parts.RunAgent(ctx, network) }, Ready: o.agentReady}}
	if rt.Endpoint == "" {
		shim := CRI{
			Listen: o.endpoint(rt), DockerHost: o.DockerHost, RootDir: filepath.Join(o.StateDir, "cri"), SandboxImage: o.SandboxImage,
			ConfDir: o.ConfDir, BinDirs: o.BinDirs,
		}
		all = append(all, Part{
			Name: "cri", Run: func(ctx context.Context) error { return o.Parts.CRI(ctx, shim, log.With("part", "cri")) },
			Ready: func(ctx context.Context) error {
				_, err := Query(ctx, o.endpoint(rt))
				return err
			},
		})
	}
	nodeLoop := loop.Config{
		Pods: pods, Runtime: o.endpoint(rt), Name: o.NodeName, RootDir: filepath.Join(o.StateDir, "node"), LogDir: o.LogDir,
		Folder: o.reads(pods), CgroupRoot: o.CgroupRoot, Listen: "unix://" + o.nodeSocket(), ResolvConf: "/etc/resolv.conf", Shared: true, Version: o.Parts.Agent.Build.Version,
	}
	return append(all,
		(&host{Config: o, endpoint: o.endpoint(rt), record: r, log: log.With("part", "runtime")}).part(),
		Part{
			Name: "node", Run: func(ctx context.Context) error { return loop.Run(ctx, nodeLoop, log.With("part", "node")) },
			Ready: nodeclient.New(o.nodeSocket()).Live,
		})
}

// agent is the part of that name.
func (o *Config) agent(log *slog.Logger) agent.Config {
	c := o.Parts.Agent
	c.Part, c.Log = true, log
	c.Socket, c.StateDir, c.Objects, c.Folder = o.Socket, o.StateDir, o.Dir, o.folder
	c.OVSDB, c.Bridge, c.NodeName, c.Iface = o.OVSDB, o.Bridge, o.NodeName, o.Iface
	c.ConfDir, c.CNIBinDirs, c.OVN = o.ConfDir, o.BinDirs, o.OVN
	if !o.OVN {
		return c
	}
	return o.Parts.Controlled(c, o.NB)
}

// agentReady wants the agent to be able to serve an ADD.
func (o *Config) agentReady(ctx context.Context) error {
	st, err := client.New(o.Socket).Status(ctx)
	if err != nil {
		return err
	}
	for _, c := range st.Conditions {
		if !c.OK && c.Name != agentapi.CheckObjects { // a bad file costs no other its network
			return fmt.Errorf("%s: %s", c.Name, c.Reason)
		}
	}
	return nil
}

// nodeSocket is where the node loop answers.
func (o *Config) nodeSocket() string { return o.besideSocket("node.sock") }

// openFolder makes all parts read the folder through one reader, which tells what
// is wrong with the files.
func (o *Config) openFolder(log *slog.Logger) {
	kinds := folder.Kinds()
	if o.OVN {
		kinds = folder.KindsOVN()
	}
	o.folder = folder.New(folder.Config{Path: o.Dir, Kinds: kinds, Log: log})
}

// reads is the reader of a folder of pods, if it is the one that is up.
func (o *Config) reads(pods string) *folder.Folder {
	if pods == o.Dir {
		return o.folder
	}
	return nil
}

// looker sees how the pods of the folder are.
func (o *Config) looker() Looker {
	if o.folder == nil { // another process has the parts, and tells what is wrong
		o.openFolder(slog.New(slog.DiscardHandler))
	}
	files := source.NewFile(source.FileConfig{
		Static: source.Static{Node: o.NodeName, Shared: true, Objects: true}, Path: o.Dir, Folder: o.folder, Log: slog.New(slog.DiscardHandler),
	})
	return Looker{
		Declared: func() ([]*v1.Pod, []string, error) {
			pods, err := files.List()
			var problems []string
			for _, p := range files.Problems() {
				if !p.Warning {
					problems = append(problems, p.String())
				}
			}
			return pods, problems, err
		},
		Pods:     nodeclient.New(o.nodeSocket()).Pods,
		Networks: func(ctx context.Context) (agentapi.PodList, error) { return client.New(o.Socket).Pods(ctx, "") },
	}
}

func dialUnix(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return errors.Unwrap(err)
	}
	return c.Close()
}
