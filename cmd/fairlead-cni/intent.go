package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/api/cni"
)

// leaveIntent stores a DEL beside the socket, durably: the agent carries it
// out before any ADD. The name sorts by time and is unique on this machine,
// and a file whose name begins with a dot is not finished.
func leaveIntent(socket string, body []byte, now time.Time) error {
	dir := filepath.Join(filepath.Dir(socket), cni.IntentsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := strconv.FormatInt(now.UnixNano(), 10) + "-" + number(os.Getpid()) + ".json"
	temp := filepath.Join(dir, "."+name)
	if err := writeSynced(temp, body); err != nil {
		_ = os.Remove(temp)
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncDir(dir)
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
