package exec

import (
	"debug/buildinfo"
	"errors"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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
	mtime, change unix.Timespec
}

// identityAt looks at a file once.
func identityAt(name string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return identity{}, err
	}
	return identity{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, change: st.Ctim}, nil
}

// settled tells, by one look at each directory, that nothing of this kind stands
// in dirs but, in the first that has it, a file that was found to be upstream's
// own: who owns it and what is in it need not be looked at again, for it is not
// going to be run.
func (o *origins) settled(kind string, dirs []string) bool {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		id, err := identityAt(filepath.Join(dir, kind))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return false
		}
		built, known := o.known.Load(id)
		return known && isUpstream(built, kind)
	}
	return true
}

// isUpstream tells by a program's import path.
func isUpstream(built any, kind string) bool {
	group, found := strings.CutPrefix(built.(string), upstreamModule) //nolint:forcetypeassert // the map has nothing else
	return found && path.Base(group) == kind
}

// upstream tells that the file at name is upstream's program called kind. It is
// not where the file cannot be read, or does not say of what it was built.
func (o *origins) upstream(name, kind string) bool {
	id, err := identityAt(name)
	if err != nil {
		return false
	}
	built, known := o.known.Load(id)
	if !known {
		built = ""
		if b, err := buildinfo.ReadFile(name); err == nil {
			built = b.Path
		}
		o.known.Store(id, built)
	}
	return isUpstream(built, kind)
}
