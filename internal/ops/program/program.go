// Package program starts the machine's own programs for an operator: to read what
// they print, or with the operator's terminal. It must not know what they are for.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/ops/doctor"
)

// safePath is the PATH of the programs that are started: the caller's own must not
// decide what root runs.
const safePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lingering bounds the wait for the end of a program's output after its own: a
// busy machine may take seconds to deliver it.
const lingering = 10 * time.Second

// Run is a doctor.Runner.
func Run(ctx context.Context, c doctor.Command) ([]byte, error) {
	path, err := lookPath(c.Argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, c.Argv[1:]...)
	cmd.Env = append([]string{"PATH=" + safePath, "LC_ALL=C"}, c.Env...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.WaitDelay = lingering
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return out, fmt.Errorf("%s: %w %s", c.Argv[0], err, line)
	}
	return out, nil
}

// Streams are a caller's.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Hand gives a program the caller's streams, and its exit code.
func Hand(ctx context.Context, s Streams, argv ...string) (code int, err error) {
	path, err := lookPath(argv[0])
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Env = []string{"PATH=" + safePath, "LC_ALL=C"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.WaitDelay = lingering
	err = cmd.Run()
	ended := (*exec.ExitError)(nil)
	if errors.As(err, &ended) && ended.Exited() {
		return ended.ExitCode(), nil
	}
	return 0, err
}

// lookPath finds a program in safePath.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range strings.Split(safePath, ":") {
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o111 != 0 && !info.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: %w", name, fs.ErrNotExist)
}
