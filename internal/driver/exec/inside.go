package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// inside gives the Plugin that makes of conf what the program of that type
// would, nil where the program is to run: the agent has none of the type, it
// does not know all of conf, or the file in the directories is not upstream's
// own, which its owner wants to be used. A file that must not be run is left to
// the program's way, which tells what is wrong with it. single tells that nobody
// comes with the same conf again.
func (d *Driver) inside(kind string, dirs []string, conf json.RawMessage, single bool) driver.Plugin {
	p := d.plugins[kind]
	if p == nil {
		return nil
	}
	yes, err := d.acceptances.accepts(p, kind, conf, single)
	if err != nil {
		if _, none := find(kind, dirs); none != nil { // nor is there a program instead
			return broken{err}
		}
	}
	if !yes {
		return nil
	}
	if d.origins.settled(kind, dirs) {
		return p
	}
	path, err := find(kind, dirs)
	if err == nil && d.origins.upstream(path, kind) {
		return p
	}
	return nil
}

// Inside implements driver.Insider, as far as the plugin itself goes; its IPAM
// plugin may need a process.
func (d *Driver) Inside(s core.Spec) bool {
	return s.Exec != nil && d.inside(s.Exec.Type, s.Exec.Path, s.Exec.Conf, false) != nil
}

// runInside is run without a process. Errors have the same shape; a panic,
// which would be the end of a process and nothing else, is an error too.
func (d *Driver) runInside(ctx context.Context, v invocation, p driver.Plugin, conf json.RawMessage) (out []byte, err error) {
	done := v.run.Time.Step("inproc." + v.exec.Type + "." + string(v.command))
	defer func() { done(err) }()
	if ctx.Err() != nil {
		return nil, v.explainInside(ctx, ended(ctx))
	}
	err = v.report(ctx, 0)
	if err == nil && v.prepare != nil {
		err = v.prepare()
	}
	if err != nil {
		return nil, core.WithCode(codeOr(err, core.CodeIO), v.heading(), err)
	}
	out, err = v.perform(ctx, p, driver.PluginCall{
		Conf: conf, Key: v.key, Netns: v.netns, Args: v.exec.Args, Alone: v.alone, IPAM: d.ipam(v, conf), Saw: v.saw,
		Time: v.run.Time,
	})
	if err != nil {
		return nil, v.explainInside(ctx, err)
	}
	return out, nil
}

// perform is driver.Perform; a panic is an error.
func (v invocation) perform(ctx context.Context, p driver.Plugin, c driver.PluginCall) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return driver.Perform(ctx, p, v.command, c)
}

// panicked is the error for a panic; to be called while that is recovered from.
func panicked(r any) error {
	return &core.Error{Code: core.CodeIO, Msg: fmt.Sprintf("panic: %v", r), Details: where(debug.Stack())}
}

// maxStack is how much of a panic's stack is told, in bytes.
const maxStack = 2 << 10

func where(stack []byte) string {
	stack = bytes.ToValidUTF8(stack[:min(maxStack, len(stack))], nil)
	return string(bytes.ReplaceAll(bytes.TrimSpace(stack), []byte("\n"), []byte(" | ")))
}

// ipam is how the plugin of v reaches the one that its ipam.type names: with the
// same standard input and environment, by the same rules.
func (d *Driver) ipam(v invocation, conf json.RawMessage) func(context.Context, core.Op) (json.RawMessage, error) {
	return func(ctx context.Context, op core.Op) (json.RawMessage, error) {
		kind, err := cniconf.IPAMType(conf)
		if err != nil {
			return nil, err
		}
		v := v
		if v.usual == nil {
			v.usual = v.exec.Conf
		}
		v.exec.Type, v.exec.Conf = kind, conf
		v.command, v.prev, v.prepare, v.saw, v.nested = op, nil, nil, nil, true
		return d.call(ctx, v)
	}
}

// explainInside makes a CNI error of what a Plugin says, as explain does of a
// program's answer.
func (v invocation) explainInside(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return core.WithCode(core.CodeTryAgain, v.heading(), err)
	}
	said := core.Error{Code: core.CodeOf(err), Msg: err.Error()}
	if e := (*core.Error)(nil); errors.As(err, &e) {
		said = *e
	}
	said.Err = fmt.Errorf("%w: %w", errPlugin, err)
	return v.answered(&said)
}
