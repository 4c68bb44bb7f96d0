package callback

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ancestors bounds how far TokenOf looks: plugins call plugins, but not so deep.
const ancestors = 16

var errStat = errors.New("stat has too few fields")

// family reads the parent and the process group of a process from
// /proc/PID/stat (proc(5), fields 4 and 5). The name in field 2 may hold
// anything, so that fields are counted from its closing bracket.
func family(pid int) (parent, group int, err error) {
	if pid <= 0 { // a process of another PID namespace than ours
		return 0, 0, os.ErrNotExist
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return 0, 0, errStat
	}
	parent, err1 := strconv.Atoi(fields[1])
	group, err2 := strconv.Atoi(fields[2])
	return parent, group, errors.Join(err1, err2)
}
