package stock

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// types are the plugin types that ours answers to.
var types = []string{"fairlead", "kube-ovn", "multus", "multus-shim"}

// InstallCNI is `install-cni`.
func (t Tools) InstallCNI() *cobra.Command {
	var (
		to, from string
		as       []string
		replace  bool
	)
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Install the CNI plugin on this machine",
		Long: `Install the CNI plugin on this machine. Each file comes by rename: a plugin that
runs is never written to, and no runtime starts half of one.`,
		Args: usage.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range as {
				if !slices.Contains(types, name) {
					return hint.Usagef("--type %s is none of %s", name, strings.Join(types, ", "))
				}
			}
			if from == "" {
				var err error
				if from, err = t.Beside("fairlead-cni"); err != nil {
					return err
				}
			}
			return installCNI(cmd, from, to, as, replace)
		},
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", runtimes.DefaultBinDir, "folder of the plugins")
	f.StringVar(&from, "from", "", "the plugin's binary (default: fairlead-cni beside this program)")
	f.StringArrayVar(&as, "type", []string{"fairlead"}, "fairlead, multus, multus-shim or kube-ovn, the name under which configurations call it (repeatable)")
	f.BoolVar(&replace, "replace", false, "replace another project's plugin")
	return cmd
}

// installCNI installs all types or stops at the first that is refused; what is
// there already stays, and the command can be repeated.
func installCNI(cmd *cobra.Command, from, to string, as []string, replace bool) error {
	for _, t := range as {
		path := filepath.Join(to, t)
		changed, err := hostfile.PutPlugin(from, path, replace)
		if errors.Is(err, hostfile.ErrForeign) {
			return hint.On(err, "move it away, leave that type out, or replace it with --replace")
		}
		if err != nil {
			return err
		}
		word := "is there already"
		if changed {
			word = "installed"
		}
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), path, word)
	}
	return nil
}
