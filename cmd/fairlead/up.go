package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/nodeup"
)

// upParts are how `fairlead up` runs the command cri.
func upParts() nodeup.Parts {
	return nodeup.Parts{
		Build: nodeagent.Build{Version: version, Commit: commit()},
		CRI: func(ctx context.Context, c nodeup.CRI, log *slog.Logger) error {
			return runCRI(ctx, criOptions{
				listen: c.Listen, dockerHost: c.DockerHost, rootDir: c.RootDir, sandboxImage: c.SandboxImage,
				plugin: pluginCNI, confDir: c.ConfDir, binDirs: c.BinDirs,
			}, log)
		},
		Ask: stockTools().Ask,
	}
}

func upCommand() *cobra.Command   { return nodeup.Command(upParts()) }
func downCommand() *cobra.Command { return nodeup.DownCommand(upParts()) }
