package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Device information files (NPWG device information specification v1.1): what
// a device plugin wrote of a device is copied to a file of the attachment,
// which the CNI plugins that ask for its name may read, or write where there
// is none; what it holds after ADD is reported, and DEL removes it.
const (
	maxInfo  = 64 << 10 // bytes; it becomes part of an annotation
	infoMode = 0o444    // as the client library of the specification has it
	dirMode  = 0o755
	inWork   = ".tmp"
)

// provide gives the attachment its file. It runs once the plugin is on record,
// so that whatever it leaves is removed by the roll-back, and before the plugin
// has its configuration. A file of an earlier attempt is never left: it told of
// another device. Trouble with the device plugin's file is a warning.
func provide(info *core.DevInfo) (warning string, err error) {
	if info == nil || info.Shared {
		return "", nil
	}
	raw, err := readInfo(info.DP)
	if err != nil {
		warning = "device information of the device plugin: " + err.Error()
	}
	if raw == nil {
		return warning, withdraw(info)
	}
	if err := writeInfo(info.CNI, raw); err != nil {
		return "", core.WithCode(core.CodeIO, "device information file "+info.CNI, err)
	}
	return warning, nil
}

// withdraw removes the attachment's file; one that is not there is success.
func withdraw(info *core.DevInfo) error {
	if info == nil || info.Shared {
		return nil
	}
	for _, name := range []string{info.CNI, info.CNI + inWork} {
		if err := os.Remove(name); err != nil && !missing(err) {
			return core.WithCode(core.CodeIO, "remove device information file", err)
		}
	}
	return nil
}

// describe adds to l what the attachment's file says after ADD.
func describe(info *core.DevInfo, l core.Link, warning string) core.Link {
	if warning != "" {
		l.Warnings = append(l.Warnings, warning)
	}
	if info == nil {
		return l
	}
	raw, err := readInfo(info.CNI)
	if err != nil {
		l.Warnings = append(l.Warnings, "device information of the plugin: "+err.Error())
		return l
	}
	l.DeviceInfo = raw
	return l
}

// readInfo reads a file that holds one JSON object, compacted; a file that is
// not there is nil. A link or a pipe is refused: the folder is open to others.
func readInfo(name string) (json.RawMessage, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", name), err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxInfo+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(raw) > maxInfo:
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxInfo)
	}
	return object(name, raw)
}

func object(name string, raw []byte) (json.RawMessage, error) {
	if err := cniconf.Strict(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if out.Bytes()[0] != '{' {
		return nil, fmt.Errorf("%s: want a JSON object", name)
	}
	return out.Bytes(), nil
}

// missing tells that a file or its folder is not there, or cannot be: a name
// that is too long for a file system names nothing.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG)
}

// writeInfo writes the file whole or not at all.
func writeInfo(name string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), dirMode); err != nil {
		return err
	}
	tmp := name + inWork
	if err := os.Remove(tmp); err != nil && !missing(err) {
		return err
	}
	if err := os.WriteFile(tmp, raw, infoMode); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, name)
}
