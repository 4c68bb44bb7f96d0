package cni

import (
	"context"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
)

// busyTries bounds the starts of a program that is being written; libcni waits a
// second between two.
const busyTries = 5

// starter starts plugins as libcni does, and those that are just being installed
// again: libcni means to, but starts an exec.Cmd for the second time, which Go
// refuses, and so tells of neither the plugin nor the file.
type starter struct{ invoke.Exec }

func newStarter() starter {
	return starter{&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}}
}

// ExecPlugin implements invoke.Exec.
func (s starter) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := s.Exec.ExecPlugin(ctx, path, stdin, env)
		if err == nil || try == busyTries || !strings.Contains(err.Error(), "exec: already started") {
			return out, err
		}
	}
}
