// Package hint says how `fairlead` is called where a hint is read: by its name
// on a machine, through kubectl where the agent runs as a pod. Texts are written
// with `fairlead ...` throughout; those that leave the process go through a Shell.
// It knows no cluster and reads no environment.
package hint

import "strings"

const program = "fairlead "

// Shell is what stands for `fairlead` in a command, "" for the name itself.
type Shell string

// In is a text whose commands, between backquotes, can be typed by its reader.
// What went through it before stays as it is.
func (s Shell) In(text string) string {
	if s == "" {
		return text
	}
	return strings.ReplaceAll(text, "`"+program, "`"+string(s)+" ")
}

// Command is the command line with these arguments.
func (s Shell) Command(args string) string {
	if s == "" {
		return program + args
	}
	return string(s) + " " + args
}
