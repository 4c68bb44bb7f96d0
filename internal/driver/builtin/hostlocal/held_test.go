package hostlocal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestKept: each address once, however many pods are on the network, with whom its
// file names; what cannot be read is told and hides nothing.
func TestKept(t *testing.T) {
	data := t.TempDir()
	write := func(network, name, content string) string {
		file := filepath.Join(data, network, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	mine := write("b", "10.1.0.5", "c1\r\neth0")
	write("b", "10.1.0.6", "")
	write("b", "last_reserved_ip.0", "10.1.0.6")
	write("a", "10.2.0.5", "old\r\n")
	require.NoError(t, os.WriteFile(filepath.Join(data, "file"), nil, 0o600))
	call := func(network string) core.Exec {
		return core.Exec{Network: network, Conf: json.RawMessage(`{"ipam":{"type":"host-local","dataDir":"` + data + `"}}`)}
	}
	kept, failed := New().Kept([]core.Exec{call("b"), call("a"), call("b"), call("file"), call("none"), {Network: "b", Conf: json.RawMessage(`{"ipam":[]}`)}})
	require.Len(t, failed, 1)
	require.ErrorContains(t, failed[0], "network file: ")
	require.Len(t, kept, 3)
	require.Equal(t, "a 10.2.0.5", kept[0].Network+" "+kept[0].Address.String())
	require.Equal(t, core.Key{Container: "old"}, kept[0].Owner)
	require.Equal(t, core.Key{Container: "c1", IfName: "eth0"}, kept[1].Owner)
	require.Equal(t, mine, kept[1].File)
	require.Equal(t, core.Key{}, kept[2].Owner)
	require.True(t, kept[1].Still())
	write("b", "10.1.0.5", "c2\r\neth0")
	require.False(t, kept[1].Still())
}
