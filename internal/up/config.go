package up

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Config is what `fairlead up` is told. Its fields are that command's flags.
type Config struct {
	// Dir is the folder, absolute.
	Dir string
	// Runtime is Auto, Docker, Containerd or a CRI endpoint, DockerHost Docker's
	// socket, "" for Docker's own, SandboxImage what keeps namespaces over Docker.
	Runtime, DockerHost, SandboxImage string
	NodeName                          string
	OVSDB, Bridge, Iface              string
	// OVN: OVN carries the networks, by its northbound database NB.
	OVN bool
	NB  string
	// StateDir, LogDir, CgroupRoot and Socket are the agent's and the node loop's;
	// ConfDir and BinDirs are empty for those of the runtime.
	StateDir, LogDir, CgroupRoot, ConfDir, Socket string
	BinDirs                                       []string
	// LogFile is where the log goes, "" for standard error.
	LogFile string
	// Given are the flags that were given, by name, for whoever does the rest.
	Given map[string][]string
	Parts Parts

	ending bool           // pods are removed, and none begins
	folder *folder.Folder // of Dir, where this process runs its parts
}

// Parts tells how to run what is a command of its own too.
type Parts struct {
	// Agent is an agent without flags, RunAgent runs one until its context ends.
	Agent    agent.Config
	RunAgent func(context.Context, agent.Config) error
	// Controlled gives an agent its controller, on a northbound database, "" for the
	// machine's own.
	Controlled func(c agent.Config, nb string) agent.Config
	CRI        func(context.Context, CRI, *slog.Logger) error
	RunPlugin  explain.RunPlugin
}

// CRI are flags of `fairlead cri`.
type CRI struct {
	Listen, DockerHost, RootDir, SandboxImage, ConfDir string
	BinDirs                                            []string
}
