package exec

import (
	"encoding/json"
	"sync"

	"github.com/fairlead/fairlead/internal/driver"
)

// Bounds of what verdicts remember: configurations, and bytes of one.
const (
	maxVerdicts = 128
	maxConf     = 16 << 10
)

// verdicts remembers which configurations a Plugin accepts: most pods of a
// network come with the same one, and reading it takes as long as some of the
// work does. A verdict depends on the bytes and the Plugin alone.
type verdicts struct {
	mu    sync.Mutex
	known map[verdictKey]bool
}

type verdictKey struct{ kind, conf string }

// accepts asks p, unless it has. single is for a conf that will not come again.
func (v *verdicts) accepts(p driver.Plugin, kind string, conf json.RawMessage, single bool) bool {
	if single || len(conf) > maxConf {
		return p.Accepts(conf) == nil
	}
	key := verdictKey{kind, string(conf)}
	v.mu.Lock()
	yes, asked := v.known[key]
	v.mu.Unlock()
	if asked {
		return yes
	}
	yes = p.Accepts(conf) == nil
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxVerdicts {
		v.known = map[verdictKey]bool{}
	}
	v.known[key] = yes
	return yes
}
