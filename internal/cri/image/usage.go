package image

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/fault"
)

// usage is what the files below a folder take, at a time.
type usage struct {
	at     time.Time
	took   time.Duration
	root   string
	bytes  uint64
	inodes uint64
}

// A walk reads every inode that Docker has, and kubelet asks each 10 seconds.
// So a measurement serves for this long, and never may measuring take more than
// one part in pause of the time.
const (
	fresh = 30 * time.Second
	pause = 20
)

func (u usage) serves(root string) bool {
	return u.root == root && time.Since(u.at) < max(fresh, pause*u.took)
}

// ImageFsInfo tells what Docker's root takes of its file system: image layers
// and the containers' own, which Docker keeps in one place. The timestamp is
// that of the measurement, which may be older than the question (30 s, or more
// where one takes long).
func (s *Service) ImageFsInfo(ctx context.Context, _ *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	info, err := s.engine(ctx)
	if err != nil {
		return nil, err
	}
	u, err := s.usage(ctx, info.DockerRootDir)
	if err != nil {
		return nil, fault.Of(err, "measure %s", info.DockerRootDir)
	}
	one := func() []*runtime.FilesystemUsage {
		return []*runtime.FilesystemUsage{{
			Timestamp:  u.at.UnixNano(),
			FsId:       &runtime.FilesystemIdentifier{Mountpoint: u.root},
			UsedBytes:  &runtime.UInt64Value{Value: u.bytes},
			InodesUsed: &runtime.UInt64Value{Value: u.inodes},
		}}
	}
	return &runtime.ImageFsInfoResponse{ImageFilesystems: one(), ContainerFilesystems: one()}, nil
}

// usage measures at most once at a time: who waited takes the other's result.
func (s *Service) usage(ctx context.Context, root string) (usage, error) {
	s.measuring.Lock()
	defer s.measuring.Unlock()
	if s.measured.serves(root) {
		return s.measured, nil
	}
	u, err := measure(ctx, root)
	if err == nil {
		s.measured = u
	}
	return u, err
}

// measure is `du -x`: blocks, not lengths, each inode once, and nothing of what
// is mounted below, which are the containers' views of the same layers.
func measure(ctx context.Context, root string) (usage, error) {
	u := usage{at: time.Now(), root: root}
	var top syscall.Stat_t
	if err := syscall.Stat(root, &top); err != nil {
		return u, &fs.PathError{Op: "stat", Path: root, Err: err}
	}
	links := map[uint64]bool{} // inodes with several names, which are few
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		st := stat(d)
		if err != nil || st == nil {
			// It went away between listing and look: the engine works on.
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if st.Dev != top.Dev {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		u.add(st, links)
		return nil
	})
	u.took = time.Since(u.at)
	return u, err
}

func (u *usage) add(st *syscall.Stat_t, links map[uint64]bool) {
	if st.Nlink > 1 && st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		if links[st.Ino] {
			return
		}
		links[st.Ino] = true
	}
	u.bytes += uint64(st.Blocks) * 512 // st_blocks counts 512 bytes whatever the block size (stat(2))
	u.inodes++
}

// stat is nil for what is gone.
func stat(d fs.DirEntry) *syscall.Stat_t {
	if d == nil {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return nil
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	return st
}
