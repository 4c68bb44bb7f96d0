//go:build profile

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// profileWindow is short: whoever ends an agent with SIGKILL loses one.
const profileWindow = 2 * time.Second

// Built with the tag "profile", an agent writes what its CPU does to files in
// the folder FAIRLEAD_PROFILES: `make profile` makes agent.pgo of them.
func init() {
	dir := os.Getenv("FAIRLEAD_PROFILES")
	if dir == "" || len(os.Args) < 2 || os.Args[1] != "agent" {
		return
	}
	go func() {
		for i := 0; ; i++ {
			if err := profile(filepath.Join(dir, fmt.Sprintf("%d-%d", os.Getpid(), i))); err != nil {
				panic(err)
			}
		}
	}()
}

// profile writes one window to a file that appears when it is whole.
func profile(path string) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	time.Sleep(profileWindow)
	pprof.StopCPUProfile()
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+".new", path+".pprof")
}
