package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/fairlead/stock"
	"github.com/fairlead/fairlead/internal/ops/program"
)

func stockTools() stock.Tools {
	return stock.Tools{
		StateDir: nodeagent.DefaultStateDir, Within: within, Agent: agentOf, Beside: beside, Run: program.Run, Failed: silentError{exitFailed},
		Output: func(cmd *cobra.Command, formats ...string) stock.Print { return outputFlag(cmd, formats...).print },
	}
}

func confCommand() *cobra.Command {
	return group("conf", "The CNI configurations that container runtimes read", stockTools().Explain())
}

func installCNICommand() *cobra.Command { return stockTools().InstallCNI() }

// beside finds a program in the folder of this one.
func beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(self), name), nil
}
