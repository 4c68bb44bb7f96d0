package up

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Beside finds a program of this name that runs on the same machine as this
// process, which is to say with the same mounts: in a container it is on another
// one. 0 is none.
func Beside(program string) (pid int, err error) {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, fmt.Errorf("look for %s: %w", program, err)
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, fmt.Errorf("look for %s: %w", program, err)
	}
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != program {
			continue // or it has ended
		}
		dir := filepath.Dir(name)
		if ns, err := os.Readlink(filepath.Join(dir, "ns", "mnt")); err == nil && ns == mine {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, nil
}
