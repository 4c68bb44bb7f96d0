package client

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// ExecInTerminal is Exec with our terminal lent to the command, if it is to have
// one and we do.
func (c *Client) ExecInTerminal(ctx context.Context, t Target, run Command) (int, error) {
	fd := int(os.Stdin.Fd())
	if !run.TTY || run.Stdin == nil || !term.IsTerminal(fd) {
		return c.Exec(ctx, t, run)
	}
	was, err := term.MakeRaw(fd)
	if err != nil {
		return 0, fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = term.Restore(fd, was) }() // there is nobody to tell
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run.Sizes = sizesOf(ctx, fd)
	return c.Exec(ctx, t, run)
}

// sizesOf tells the terminal's size, first as it is, then whenever it changes.
func sizesOf(ctx context.Context, fd int) <-chan Size {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	out := make(chan Size)
	go func() {
		defer close(out)
		defer signal.Stop(changed)
		for {
			if width, height, err := term.GetSize(fd); err == nil {
				select {
				case out <- Size{Width: uint16(width), Height: uint16(height)}: //nolint:gosec // a terminal's
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
