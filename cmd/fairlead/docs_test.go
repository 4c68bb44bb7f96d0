package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestEveryCommandIsInTheDocs: docs/cli.md has every command, and no command or
// flag that there is not.
func TestEveryCommandIsInTheDocs(t *testing.T) {
	docs, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	root := rootCommand()
	root.InitDefaultCompletionCmd()
	told := map[*cobra.Command]bool{}
	for _, code := range regexp.MustCompile("`fairlead ([^`]+)`").FindAllStringSubmatch(string(docs), -1) {
		cmd, rest, err := root.Find(strings.Fields(strings.ReplaceAll(code[1], `\|`, "|")))
		require.NoErrorf(t, err, "`fairlead %s`", code[1])
		require.NotEqualf(t, root, cmd, "`fairlead %s` is no command", code[1])
		unknown := cmd.HasSubCommands() && cmd.Use == cmd.Name() && len(rest) > 0 && !strings.HasPrefix(strings.TrimLeft(rest[0], "["), "-")
		require.Falsef(t, unknown, "`fairlead %s` is no command", code[1])
		told[cmd] = true
		for _, word := range rest {
			if name, flag := strings.CutPrefix(strings.Trim(word, "[],"), "--"); flag && name != "" {
				require.NotNilf(t, cmd.Flag(name), "`fairlead %s` has no --%s", code[1], name)
			}
		}
	}
	for _, cmd := range leaves(root) {
		require.Truef(t, told[cmd], "docs/cli.md has no row of `%s`", cmd.CommandPath())
	}
}

// leaves are the commands of ours that do something.
func leaves(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var out []*cobra.Command
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" {
			out = append(out, leaves(sub)...)
		}
	}
	return out
}
