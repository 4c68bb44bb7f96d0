package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeup"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/up"
)

// upParts are how `fairlead up` runs the commands agent and cri.
func upParts() up.Parts {
	return up.Parts{
		Agent: nodeagent.Defaults(agent.Build{Version: version, Commit: usage.Commit()}), RunAgent: nodeagent.Run, Controlled: nodeagent.WithController,
		CRI: func(ctx context.Context, c up.CRI, log *slog.Logger) error {
			return runCRI(ctx, criOptions{
				listen: c.Listen, dockerHost: c.DockerHost, rootDir: c.RootDir, sandboxImage: c.SandboxImage,
				plugin: pluginCNI, confDir: c.ConfDir, binDirs: c.BinDirs,
			}, log)
		},
		RunPlugin: stockTools().RunPlugin,
	}
}

func upCommand() *cobra.Command   { return nodeup.Command(upParts()) }
func downCommand() *cobra.Command { return nodeup.DownCommand(upParts()) }
