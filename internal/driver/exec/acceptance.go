package exec

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/fairlead/fairlead/internal/driver"
)

// Bounds of what acceptances remember: configurations, and bytes of one.
const (
	maxAnswers = 128
	maxConf    = 16 << 10
)

// acceptances remembers which configurations a Plugin accepts: most pods of a
// network come with the same one, and reading it takes as long as some of the
// work does. What is accepted depends on the bytes and the Plugin alone.
type acceptances struct {
	mu    sync.Mutex
	known map[answerKey]bool
}

type answerKey struct{ kind, conf string }

// accepts asks p, unless it has. single is for a conf that will not come again.
// The error is a panic of p's, of which nothing is remembered.
func (v *acceptances) accepts(p driver.Plugin, kind string, conf json.RawMessage, single bool) (bool, error) {
	if single || len(conf) > maxConf {
		return ask(p, conf)
	}
	key := answerKey{kind, string(conf)}
	v.mu.Lock()
	yes, asked := v.known[key]
	v.mu.Unlock()
	if asked {
		return yes, nil
	}
	yes, err := ask(p, conf)
	if err != nil {
		return false, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxAnswers {
		v.known = map[answerKey]bool{}
	}
	v.known[key] = yes
	return yes, nil
}

// ask is Accepts of which nothing but its outcome comes out.
func ask(p driver.Plugin, conf json.RawMessage) (yes bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			yes, err = false, panicked(r)
		}
	}()
	return p.Accepts(conf) == nil, nil
}

// broken stands for a plugin that cannot even say what it accepts.
type broken struct{ err error }

func (b broken) Accepts(json.RawMessage) error { return b.err }

func (b broken) Add(context.Context, driver.PluginCall) (json.RawMessage, error) { return nil, b.err }

func (b broken) Check(context.Context, driver.PluginCall) error  { return b.err }
func (b broken) Del(context.Context, driver.PluginCall) error    { return b.err }
func (b broken) GC(context.Context, driver.PluginCall) error     { return b.err }
func (b broken) Status(context.Context, driver.PluginCall) error { return b.err }
