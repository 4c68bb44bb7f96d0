package hostfile

import (
	"fmt"
	"os"
	"syscall"
)

// OnlyRoot is nil when root alone can have written the files and folders: they
// belong to root, and nobody else may write them. Of a program that is about to
// be started the caller names the folder that it was looked for in, the one that
// it really is in, and itself: whoever writes one of them decides what runs.
func OnlyRoot(paths ...string) error {
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || st.Uid != 0:
			return fmt.Errorf("%s does not belong to root; what root starts must be owned by root", p)
		case info.Mode().Perm()&0o022 != 0:
			return fmt.Errorf("%s can be written by others than its owner (%s); what root starts must be writable by nobody else", p, info.Mode().Perm())
		}
	}
	return nil
}
