package hostfile

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrForeign says that a plugin of another project stands where ours should.
var ErrForeign = errors.New("it is another program")

// pluginPath is the main package of our plugin, which a Go program carries.
const pluginPath = "github.com/fairlead/fairlead/cmd/fairlead-cni"

// OwnPlugin tells that a file is our plugin, of whichever version.
func OwnPlugin(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Path == pluginPath
}

// PutPlugin installs our plugin at to, by rename: a plugin that runs is never
// written to ("text file busy"). It reports whether anything changed. Another
// project's program is replaced only on request; ErrForeign otherwise.
func PutPlugin(from, to string, force bool) (changed bool, err error) {
	if !OwnPlugin(from) {
		return false, fmt.Errorf("install %s: %s is not Fairlead's plugin", to, from)
	}
	_, err = os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, fmt.Errorf("install %s: %w", to, err)
	case !OwnPlugin(to) && !force:
		return false, fmt.Errorf("install %s: %w", to, ErrForeign)
	case equal(from, to):
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return false, fmt.Errorf("install %s: %w", to, err)
	}
	return true, Copy(from, to, 0o755)
}

// equal tells that two files have the same content and can both be executed.
func equal(a, b string) bool {
	info, err := os.Lstat(b)
	return err == nil && info.Mode() == 0o755 && SameFile(a, b)
}

// SameFile tells that two files have the same content.
func SameFile(a, b string) bool {
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	return errors.Join(errX, errY) == nil && bytes.Equal(x, y)
}
