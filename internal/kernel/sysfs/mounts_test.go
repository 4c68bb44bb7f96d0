package sysfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMountPoints: names are read as proc(5) writes them; a line that ends early is
// no mount.
func TestMountPoints(t *testing.T) {
	require.Equal(t, []string{"/", "/a b", "/a b", "/tab\tnew\nback\\end", `/short\04`}, mountPoints(`22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /a\040b rw - tmpfs tmpfs rw
31 30 0:27 / /a\040b rw - tmpfs tmpfs rw
32 22 0:28 / /tab\011new\012back\134end rw - tmpfs tmpfs rw
33 22 0:29
34 22 0:30 / /short\04 rw - tmpfs tmpfs rw
`))
	all, err := MountPoints()
	require.NoError(t, err)
	require.Contains(t, all, "/proc")
}
