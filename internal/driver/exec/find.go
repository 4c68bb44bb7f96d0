package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
)

// errNowhere marks a plugin that has a file in none of the directories.
var errNowhere = errors.New("no such file")

// find locates a plugin's binary in the directories. What runs with the
// agent's rights must be under root's control alone: file and directory belong
// to root and nobody else may write them, also behind symlinks. The first
// directory that has the file decides; an unsafe file there is an error and
// not a reason to look further.
func find(name string, dirs []string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return "", core.Errorf(core.CodeConfig, "plugin type %q is not a plain file name", name)
	}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err == nil {
			err = safe(dir, path)
		}
		if passing(err) { // it cannot be looked at now
			return "", core.Errorf(core.CodeIO, "plugin %q: %w", name, err)
		}
		if err != nil {
			return "", core.Errorf(core.CodeConfig, "plugin %q: %w", name, err)
		}
		return path, nil
	}
	return "", &core.Error{Code: core.CodeConfig, Err: errNowhere, Msg: fmt.Sprintf(
		"plugin %q is in none of %s: install it there, or name its directory with --cni-bin-dir", name, strings.Join(dirs, ", "))}
}

// safe checks the directory that was searched, the one the file really is in,
// and the file.
func safe(dir, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return hostfile.OnlyRoot(dir, filepath.Dir(path), path)
}
