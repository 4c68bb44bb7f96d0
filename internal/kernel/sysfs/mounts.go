package sysfs

import (
	"os"
	"strconv"
	"strings"
)

// MountPoints are the mount points that this process sees, as real paths, in the
// kernel's order: of several on one another the uppermost is the last, and each
// is named. The error is that of reading proc(5)'s mountinfo.
func MountPoints() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return mountPoints(string(text)), nil
}

// mountPoints takes the fifth field of each line (proc(5)).
func mountPoints(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 4 {
			out = append(out, unescape(f[4]))
		}
	}
	return out
}

// unescape reads the octal escapes of space, tab, newline and backslash.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
