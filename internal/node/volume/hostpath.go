package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// modes of a file that each type of hostPath wants, where it makes nothing.
var modes = map[v1.HostPathType]struct {
	bits, want os.FileMode
	what       string
}{
	v1.HostPathDirectory: {os.ModeType, os.ModeDir, "a folder"},
	v1.HostPathFile:      {os.ModeType, 0, "a file"},
	v1.HostPathSocket:    {os.ModeType, os.ModeSocket, "a socket"},
	v1.HostPathCharDev:   {os.ModeType, os.ModeDevice | os.ModeCharDevice, "a character device"},
	v1.HostPathBlockDev:  {os.ModeType, os.ModeDevice, "a block device"},
}

// hostPath checks, and with the types ...OrCreate makes, a path of the machine.
func hostPath(h *v1.HostPathVolumeSource) (Mount, error) {
	kind := v1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	var err error
	switch kind {
	case v1.HostPathUnset:
		return Mount{Path: h.Path}, nil
	case v1.HostPathDirectoryOrCreate:
		err, kind = os.MkdirAll(h.Path, 0o755), v1.HostPathDirectory
	case v1.HostPathFileOrCreate:
		err, kind = touch(h.Path), v1.HostPathFile
	}
	if err != nil {
		return Mount{}, err
	}
	return Mount{Path: h.Path}, is(h.Path, kind)
}

// touch makes an empty file unless something is there; its folder must exist.
func touch(path string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func is(path string, kind v1.HostPathType) error {
	m, known := modes[kind]
	if !known {
		return fmt.Errorf("hostPath type %q is not known", kind)
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Mode()&m.bits != m.want {
		return fmt.Errorf("%s is not %s", path, m.what)
	}
	return nil
}
