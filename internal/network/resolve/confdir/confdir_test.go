package confdir_test

import (
	"log/slog"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/confdir"
)

// TestTheRuntimesOwnConfiguration: it is one of the runtime's networks, with all
// that follows behind us in its list, and it is no network that a pod can have.
func TestTheRuntimesOwnConfiguration(t *testing.T) {
	const inner = `[{"cniVersion":"1.0.0","name":"main","type":"bridge"}]`
	r := confdir.Reader{Log: slog.New(slog.DiscardHandler), Dirs: []string{"/net.d"}, Files: fstest.MapFS{
		"net.d/00-fairlead.conflist": {Data: []byte(`{"cniVersion":"1.1.0","name":"ours","plugins":[{"type":"fairlead","delegates":` + inner + `},{"type":"tuning","mtu":1300}]}`)},
		"net.d/00-multus.conf":       {Data: []byte(`{"cniVersion":"0.3.1","name":"single","type":"multus","clusterNetwork":"main"}`)},
		"net.d/05-torn.conf":         {Data: []byte(`{"cniVersion":`)},
		"net.d/10-main.conflist":     {Data: []byte(`{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"bridge"}]}`)},
	}}
	all := r.All("/net.d")
	require.Len(t, all, 3)
	require.Equal(t, "ours", all[0].Name)
	require.Equal(t, "1.1.0", all[0].CNIVersion)
	require.Len(t, all[0].Plugins, 2)
	require.Equal(t, 1300, cniconf.TunedMTU(all, core.Conf{Name: "ours"}))
	require.Equal(t, "single", all[1].Name)
	require.Contains(t, string(all[1].Plugins[0].Raw), "clusterNetwork")

	for _, name := range []string{"ours", "single"} {
		_, err := r.ByName(name)
		require.ErrorIs(t, err, core.ErrNotFound, name)
	}
	_, err := r.ByPath("/net.d/00-fairlead.conflist")
	require.ErrorIs(t, err, cniconf.ErrNested)
	c, err := r.ByPath("/net.d")
	require.ErrorContains(t, err, "05-torn.conf", "as for every file that comes first: %v", c)
	_, err = cniconf.ParseChain([]byte(`{"cniVersion":"1.0.0","name":"nad","type":"fairlead","delegates":`+inner+`}`), "")
	require.ErrorIs(t, err, cniconf.ErrNested)
}
