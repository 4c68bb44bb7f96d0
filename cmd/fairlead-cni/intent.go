package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/fairlead/fairlead/api/cni"
)

// leaveIntent stores a DEL beside the socket, durably: the agent carries it
// out, before any ADD of the same container. The name is unique on this machine,
// and a file whose name begins with a dot is not finished.
func leaveIntent(socket string, req cni.Request, now time.Time) error {
	req.BootID = bootID()
	dir := filepath.Join(filepath.Dir(socket), cni.IntentsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := strconv.FormatInt(now.UnixNano(), 10) + "-" + number(os.Getpid()) + ".json"
	temp := filepath.Join(dir, "."+name)
	if err := writeSynced(temp, encodeRequest(req)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncDir(dir)
}

// bootID is this boot's random id; without it the agent goes by the file's time.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// clockBoottime is CLOCK_BOOTTIME of linux/time.h.
const clockBoottime = 7

// boottime is the time since the boot in ns, 0 where the kernel does not tell.
func boottime() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 { //nolint:gosec // the only way without golang.org/x/sys
		return 0
	}
	return ts.Nano()
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // after Sync nothing is left to fail
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
