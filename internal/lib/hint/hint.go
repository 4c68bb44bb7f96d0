// Package hint holds the errors that tell a user what to do, of a wrong command
// line and with a next step, and says how `fairlead` is called where a hint is
// read: by its name on a machine, through kubectl where the agent runs as a pod.
// Texts are written with `fairlead ...` throughout; those that leave the process
// go through a Shell. It knows no command, no cluster, and reads no environment.
package hint

import (
	"regexp"
	"strings"
)

// Shell is what stands for `fairlead` in a command, "" for the name itself.
type Shell string

// command finds those of our commands that ask the agent or look at its machine.
// The others, as install, are run where kubectl is.
var command = regexp.MustCompile("(`|next: )(?:sudo )?fairlead ((?:check|conf|describe|detach|doctor|gc|get|ip|status|support-bundle|version)\\b)")

// In is a text whose commands its reader can type: those in backquotes, and those
// that are said to be next. What went through it before stays as it is.
func (s Shell) In(text string) string {
	if s == "" {
		return text
	}
	return command.ReplaceAllString(text, "${1}"+strings.ReplaceAll(string(s), "$", "$$")+" ${2}")
}
