package nodeup

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

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeloop"
	"github.com/fairlead/fairlead/cmd/fairlead/usage"
	"github.com/fairlead/fairlead/internal/autoconf"
	"github.com/fairlead/fairlead/internal/client"
	"github.com/fairlead/fairlead/internal/confexplain"
	"github.com/fairlead/fairlead/internal/hostfile"
	nodeclient "github.com/fairlead/fairlead/internal/node/client"
	"github.com/fairlead/fairlead/internal/node/source"
	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/up"
)

// besideSocket is a socket in the folder of the agent's.
func (o *options) besideSocket(name string) string {
	return filepath.Join(filepath.Dir(o.socket), name)
}

// endpoint is where the node loop finds its runtime.
func (o *options) endpoint(rt up.Runtime) string {
	if rt.Endpoint != "" {
		return rt.Endpoint
	}
	return "unix://" + o.besideSocket("cri.sock")
}

// prepare writes down what is up, then makes what the runtime needs to call the
// agent: the plugin, and the folder of its configuration, which the agent writes.
func (o *options) prepare(r *up.Record, rt up.Runtime) (*up.Record, error) {
	if r == nil {
		r = &up.Record{Dir: o.dir, Runtime: rt.Key(), Untried: true}
		if conf := filepath.Join(o.confDir, autoconf.Name); !callsUs(o.confDir) {
			r.Wrote = append(r.Wrote, conf)
		}
		if plugin := filepath.Join(o.binDirs[0], "fairlead"); !o.hasPlugin() {
			r.Wrote = append(r.Wrote, plugin)
		}
	}
	r.Flags = o.changed
	if err := r.Save(o.stateDir); err != nil {
		return nil, err
	}
	if o.hasPlugin() {
		return r, nil
	}
	self, err := os.Executable()
	from := filepath.Join(filepath.Dir(self), "fairlead-cni")
	if err == nil {
		err = os.MkdirAll(o.binDirs[0], 0o755)
	}
	if err == nil {
		_, err = hostfile.PutPlugin(from, filepath.Join(o.binDirs[0], "fairlead"), false)
	}
	if err != nil {
		return nil, usage.Hint(fmt.Errorf("CNI plugin: %w", err), "`make install`, or put fairlead-cni beside this program")
	}
	return r, nil
}

func (o *options) hasPlugin() bool {
	for _, dir := range o.binDirs {
		if hostfile.OwnPlugin(filepath.Join(dir, "fairlead")) {
			return true
		}
	}
	return false
}

// callsUs tells that the runtime's configuration calls Fairlead already. The
// other names that our plugin answers to (core.OwnType) may be their owners'.
func callsUs(dir string) bool {
	types, err := confexplain.Types(dir)
	return err == nil && slices.Contains(types, pluginType)
}

// list are the process's, in the order of their start, on the pods of a folder.
func (o *options) list(rt up.Runtime, r up.Record, pods string, log *slog.Logger) []up.Part {
	conf := ""
	for _, f := range r.Wrote {
		if f == filepath.Join(o.confDir, autoconf.Name) {
			conf = "auto"
		}
	}
	network := o.agent(log)
	network.CNIConf = conf
	all := []up.Part{{Name: "agent", Run: network.Run, Ready: o.agentReady}}
	if rt.Endpoint == "" {
		shim := CRI{
			Listen: o.endpoint(rt), DockerHost: o.dockerHost, RootDir: filepath.Join(o.stateDir, "cri"), SandboxImage: o.sandboxImage,
			ConfDir: o.confDir, BinDirs: o.binDirs,
		}
		all = append(all, up.Part{
			Name: "cri", Run: func(ctx context.Context) error { return o.parts.CRI(ctx, shim, log.With("part", "cri")) },
			Ready: func(ctx context.Context) error {
				_, err := up.Ask(ctx, o.endpoint(rt))
				return err
			},
		})
	}
	loop := nodeloop.Options{
		Pods: pods, Runtime: o.endpoint(rt), Name: o.nodeName, RootDir: filepath.Join(o.stateDir, "node"), LogDir: o.logDir,
		Folder: o.reads(pods), CgroupRoot: o.cgroupRoot, Listen: "unix://" + o.nodeSocket(), ResolvConf: "/etc/resolv.conf", Shared: true, Version: o.parts.Build.Version,
	}
	return append(all,
		(&host{options: o, endpoint: o.endpoint(rt), record: r, log: log.With("part", "runtime")}).part(),
		up.Part{
			Name: "node", Run: func(ctx context.Context) error { return nodeloop.Run(ctx, loop, log.With("part", "node")) },
			Ready: nodeclient.New(o.nodeSocket()).Live,
		})
}

// agent is the part of that name.
func (o *options) agent(log *slog.Logger) nodeagent.Part {
	return nodeagent.Part{
		Socket: o.socket, StateDir: o.stateDir, Objects: o.dir, Folder: o.folder, OVSDB: o.ovsdb, Bridge: o.bridge, NodeName: o.nodeName,
		Iface: o.iface, ConfDir: o.confDir, CNIBinDirs: o.binDirs, Build: o.parts.Build, Log: log.With("part", "agent"),
	}
}

// agentReady wants the agent to be able to serve an ADD.
func (o *options) agentReady(ctx context.Context) error {
	st, err := client.New(o.socket).Status(ctx)
	if err != nil {
		return err
	}
	for _, c := range st.Conditions {
		if !c.OK && c.Name != agent.CheckObjects { // a bad file costs no other its network
			return fmt.Errorf("%s: %s", c.Name, c.Reason)
		}
	}
	return nil
}

// nodeSocket is where the node loop answers.
func (o *options) nodeSocket() string { return o.besideSocket("node.sock") }

// openFolder makes all parts read the folder through one reader, which tells what
// is wrong with the files.
func (o *options) openFolder(log *slog.Logger) {
	o.folder = folder.New(folder.Config{Path: o.dir, Kinds: folder.Kinds(), Log: log})
}

// reads is the reader of a folder of pods, if it is the one that is up.
func (o *options) reads(pods string) *folder.Folder {
	if pods == o.dir {
		return o.folder
	}
	return nil
}

// looker sees how the pods of the folder are.
func (o *options) looker() up.Looker {
	files := source.NewFile(source.FileConfig{
		Static: source.Static{Node: o.nodeName, Shared: true, Objects: true}, Path: o.dir, Folder: o.folder, Log: slog.New(slog.DiscardHandler),
	})
	return up.Looker{
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
		Networks: func(ctx context.Context) (agent.PodList, error) { return client.New(o.socket).Pods(ctx, "") },
	}
}

func dialUnix(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return errors.Unwrap(err)
	}
	return c.Close()
}
