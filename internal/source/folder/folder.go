// Package folder reads the objects that stand in files, YAML or JSON, for
// everybody who takes desired state from there: what kubectl takes is taken, and
// means the same. Each subscriber says which kinds are its own. What is wrong
// with a document is told once, with its file and line, and leaves out that
// document alone. It knows names and kinds of objects, not what they mean.
package folder

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// MaxFile bounds a file, exclusive, in bytes (kubelet's limit).
const MaxFile = 10 << 20

// Config says what is read.
type Config struct {
	// Path is a folder, of which the files that stand directly in it count and
	// whose names do not begin with a dot; or one file.
	Path string
	// All has every such file read, as kubelet does; without it the name has to
	// end in .yaml, .yml or .json.
	All bool
	// Kinds may stand in the files; other documents are refused.
	Kinds []Kind
	Log   *slog.Logger
}

// Folder is read by all its subscribers, each when it wants to; a file that has
// not changed is parsed once for all of them. It is safe for concurrent use.
type Folder struct {
	cfg  Config
	tell *Teller

	mu    sync.Mutex
	files map[string]*version
}

// version is a file as it was read, and the sign by which a change is seen.
type version struct {
	*File
	stamp stamp
	hash  [sha256.Size]byte
}

// stamp tells two versions of a file apart without reading it. One that was
// taken right after the write is not trusted: a second write within the clock's
// tick would leave it the same.
type stamp struct {
	dev, inode uint64
	size       int64
	modified   time.Time
	changed    int64 // ns since 1970
	settled    bool
}

const settleTime = 2 * time.Second

// New reads nothing yet.
func New(cfg Config) *Folder {
	return &Folder{cfg: cfg, tell: &Teller{Log: cfg.Log}, files: map[string]*version{}}
}

// Subscription is one reader's view of a Folder.
type Subscription struct {
	*Folder
	kinds []string
}

// Subscribe is for whoever takes care of some kinds of objects.
func (f *Folder) Subscribe(kinds ...string) *Subscription { return &Subscription{f, kinds} }

// Of are the objects of a file that are subscribed to.
func (s *Subscription) Of(f *File) []*Object { return f.Of(s.kinds...) }

// Tell logs the Problems that the subscriber has with its objects, all that there
// are now. What others tell, or the Folder itself, is told once.
func (s *Subscription) Tell(all []Problem) { s.tell.Tell(s, all) }

// Path is the one that was given.
func (f *Folder) Path() string { return f.cfg.Path }

// Read gives the files as they are now, in the order of their names. A file that
// has not changed since is the same *File; nobody changes it. The error is
// fs.ErrNotExist when nothing has the folder's name, also when the folder was
// moved away meanwhile, with its files: none of them was removed.
func (f *Folder) Read() ([]*File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// O_NONBLOCK: a pipe would be waited for.
	opened, err := os.OpenFile(f.cfg.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	names, err := f.names(opened)
	if err != nil {
		return nil, err
	}
	fresh, missing := make(map[string]*version, len(names)), false
	var files []*File
	var problems []Problem
	for _, name := range names {
		v := f.version(name)
		if v == nil {
			missing = true
			continue
		}
		fresh[name] = v
		files, problems = append(files, v.File), append(problems, v.Problems()...)
	}
	if missing && !f.has(opened) {
		return nil, fmt.Errorf("%s: %w", f.cfg.Path, fs.ErrNotExist)
	}
	f.files = fresh
	f.tell.Tell(f, problems)
	return files, nil
}

// names lists the files to read.
func (f *Folder) names(opened *os.File) ([]string, error) {
	info, err := opened.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		return []string{f.cfg.Path}, nil
	case !info.IsDir():
		return nil, errors.New("is neither a folder nor a file")
	}
	entries, err := opened.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && (f.cfg.All || objectFile(e.Name())) {
			out = append(out, filepath.Join(f.cfg.Path, e.Name()))
		}
	}
	return out, nil
}

// objectFile tells the files of objects by name.
func objectFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// has tells whether the folder is still the one that was opened.
func (f *Folder) has(opened *os.File) bool {
	a, err := opened.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(f.cfg.Path)
	return err == nil && os.SameFile(a, b)
}

// version is the present state of a file, the one known if it has not changed;
// nil when it is not there any more. A link that leads nowhere is there: what it
// led to may be on a file system that is not mounted.
func (f *Folder) version(name string) *version {
	old := f.files[name]
	if old == nil {
		old = &version{}
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil {
		return old.unreadable(name, err)
	}
	now := stampOf(info)
	if old.File != nil && old.stamp == now && now.settled {
		return old
	}
	data, err := readFile(name, info)
	if err != nil {
		return old.unreadable(name, err)
	}
	hash := sha256.Sum256(data)
	if old.File != nil && old.hash == hash {
		return &version{File: old.File, stamp: now, hash: hash}
	}
	return &version{File: Parse(name, data, f.cfg.Kinds), stamp: now, hash: hash}
}

// unreadable is a file of which nothing is known now. It stays the same while
// the reason does.
func (v *version) unreadable(name string, err error) *version {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = fmt.Errorf("%s: %w", pe.Op, pe.Err) // a Problem names the path anyhow
	}
	p := Problem{Where: name, Reason: "cannot be read: " + err.Error()}
	if v.File != nil && len(v.Refused) == 1 && v.Refused[0].Problem == p {
		return v
	}
	return &version{File: &File{Name: name, Refused: []Refusal{{Problem: p}}}}
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	last := s.modified
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.inode, s.changed = st.Dev, st.Ino, st.Ctim.Nano()
		if changed := time.Unix(0, s.changed); changed.After(last) {
			last = changed
		}
	}
	s.settled = time.Since(last) > settleTime
	return s
}

// readFile reads what info, which was seen before, says to be a file of a size
// that is allowed; both are looked at again once it is open.
func readFile(name string, info fs.FileInfo) ([]byte, error) {
	if err := readable(info); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err == nil {
		err = readable(info)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxFile))
	if err == nil && len(data) >= MaxFile {
		err = fmt.Errorf("has %d bytes or more, the limit is %d", len(data), MaxFile-1)
	}
	return data, err
}

func readable(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("is not a file; folders in the folder are not read")
	case info.Size() >= MaxFile:
		return fmt.Errorf("has %d bytes, the limit is %d", info.Size(), MaxFile-1)
	}
	return nil
}
