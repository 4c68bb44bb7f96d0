package exec

import (
	"debug/buildinfo"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
)

// upstreamModule is where the well-known plugins have their sources, each in a
// folder of its own below a group (main, ipam, meta).
const upstreamModule = "github.com/containernetworking/plugins/plugins/"

// origins remembers which files are upstream's own programs: what one was built
// of stands in it, and reading that takes longer than most calls.
type origins struct{ known sync.Map } // identity -> import path

// identity is a file as it was when it was read. A file that is written again
// has other times.
type identity struct {
	dev, ino      uint64
	size          int64
	mtime, change syscall.Timespec
}

// upstream tells that the file at name is upstream's program called kind. It is
// not where the file cannot be read, or does not say of what it was built.
func (o *origins) upstream(name, kind string) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	id := identity{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, change: st.Ctim}
	built, known := o.known.Load(id)
	if !known {
		built = ""
		if b, err := buildinfo.ReadFile(name); err == nil {
			built = b.Path
		}
		o.known.Store(id, built)
	}
	group, found := strings.CutPrefix(built.(string), upstreamModule) //nolint:forcetypeassert // the map has nothing else
	return found && path.Base(group) == kind
}
