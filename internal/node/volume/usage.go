package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of one look at a folder: how deep it goes, each level being an open
// file, and how many names it reads at once.
const (
	deepest = 1000
	namesIn = 1024
)

// Excess is a volume that holds more than it may.
type Excess struct {
	Volume string
	Limit  resource.Quantity
}

// Limited tells that a pod has volumes that Over is to look at: emptyDirs on the
// disk with a sizeLimit. Those in memory are bounded by their file system.
func Limited(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limited(&pod.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

func limited(v *v1.Volume) bool {
	e := v.EmptyDir
	return e != nil && e.Medium == v1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0
}

// Over finds an emptyDir on the disk that holds more than its sizeLimit; nil
// when there is none. Counted is what files take of the disk, each once, however
// many names it has; what is deleted and still open is not. It may be called
// beside all else, and while containers write.
func (f *Folder) Over(ctx context.Context, pod *v1.Pod) (*Excess, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !limited(v) || !isName(v.Name) {
			continue
		}
		limit := v.EmptyDir.SizeLimit
		over, err := f.over(ctx, pod.UID, v.Name, limit.Value())
		if over {
			return &Excess{Volume: v.Name, Limit: *limit}, nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("size of volume %s of %s/%s: %w", v.Name, pod.Namespace, pod.Name, err))
		}
	}
	return nil, errors.Join(errs...)
}

func (f *Folder) over(ctx context.Context, uid types.UID, name string, limit int64) (bool, error) {
	m := meter{ctx: ctx, limit: limit, seen: map[uint64]bool{}}
	fd, err := unix.Open(f.dir(uid, kindEmptyDir, name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if gone(err) {
		return false, nil // not made yet
	}
	if err == nil {
		err = m.folder(fd, 0)
	}
	return m.used > limit, err
}

// gone tells what a container removed, or made something else, while we looked.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// meter adds up what a folder takes. It goes from folder to folder by open
// files: names may be links to anywhere, and paths longer than the kernel takes.
type meter struct {
	ctx   context.Context //nolint:containedctx // of one look
	limit int64           // bytes; what is beyond is not counted any more
	used  int64
	dev   uint64
	seen  map[uint64]bool // inodes of more than one name
}

// folder counts what is in a folder, and closes it.
func (m *meter) folder(fd, depth int) error {
	dir := os.NewFile(uintptr(fd), "")
	defer dir.Close()
	var own unix.Stat_t
	if err := unix.Fstat(fd, &own); err != nil {
		return err
	}
	if depth == 0 {
		m.dev = own.Dev
	}
	if own.Dev != m.dev {
		return nil // something is mounted there
	}
	if depth > deepest {
		return fmt.Errorf("folders lie more than %d deep", deepest)
	}
	for m.used <= m.limit && m.ctx.Err() == nil {
		names, err := dir.Readdirnames(namesIn)
		for _, name := range names {
			if err := m.entry(fd, name, depth); err != nil {
				return err
			}
		}
		if len(names) == 0 || err != nil {
			return nil // its end, or it has gone
		}
	}
	return m.ctx.Err()
}

func (m *meter) entry(in int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(in, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return unlessGone(err)
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if m.count(&st, dir); !dir || m.used > m.limit {
		return nil
	}
	fd, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return unlessGone(err)
	}
	return m.folder(fd, depth+1)
}

// count adds what one file or folder takes, unless it was counted by another
// name or lies on another file system.
func (m *meter) count(st *unix.Stat_t, dir bool) {
	const block = 512 // bytes, whatever the file system's (stat(2))
	if st.Dev != m.dev {
		return
	}
	if !dir && st.Nlink > 1 {
		if m.seen[st.Ino] {
			return
		}
		m.seen[st.Ino] = true
	}
	m.used += st.Blocks * block
}

func unlessGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}
