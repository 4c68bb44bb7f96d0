package conf

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/stretchr/testify/require"
)

// types are the plugins of a list, in order.
func types(l *libcni.NetworkConfigList) (out []string) {
	for _, p := range l.Plugins {
		out = append(out, p.Network.Type)
	}
	return out
}

// TestPluginsOfTheFolder: those of the folder with the network's name are
// chained behind it, once, whether the runtime knows such folders (libcni 1.3)
// or only the file; changes are followed, and half a chain is none.
func TestPluginsOfTheFolder(t *testing.T) {
	for name, c := range map[string]struct {
		conf Config
		name string
	}{
		"our own network":       {Config{}, "fairlead"},
		"around somebody's":     {Config{Master: Auto}, "fairlead"},
		"under somebody's name": {Config{Master: Auto, Options: Options{KeepName: true}}, "k8s-pod-network"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c.conf)
			b.put("10-calico.conflist", calico)
			b.run()
			b.await(whatever)
			folder := filepath.Join(b.dir, c.name)
			require.NoError(t, os.Mkdir(folder, 0o755))
			put := func(file, content string) {
				t.Helper()
				require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600))
			}
			put("20-sbr.conf", `{"type":"sbr"}`)
			put("10-tuning.conf", `{"type":"tuning","mtu":1300}`)
			put("notes.txt", "nothing")
			b.awaitTypes("fairlead", "tuning", "sbr")
			require.NoError(t, os.Remove(filepath.Join(folder, "20-sbr.conf")))
			b.awaitTypes("fairlead", "tuning")

			put("30-bad.conf", `{"mtu":1}`)
			require.Eventually(t, func() bool { return b.w.Status() != nil }, 30*time.Second, time.Millisecond)
			require.ErrorContains(t, b.w.Status(), folder)
			b.awaitTypes("fairlead", "tuning")
			put("30-bad.conf", `{"type":"fairlead"}`)
			require.Eventually(t, func() bool {
				err := b.w.Status()
				return err != nil && filepath.Base(folder) == c.name && len(err.Error()) > 0
			}, 30*time.Second, time.Millisecond)
			require.NoError(t, os.RemoveAll(folder))
			b.awaitTypes("fairlead")
		})
	}
}

// awaitTypes waits until both kinds of runtimes run these plugins.
func (b *bed) awaitTypes(want ...string) {
	b.t.Helper()
	var old, now []string
	require.Eventually(b.t, func() bool {
		content, err := os.ReadFile(b.path())
		if err != nil {
			return false
		}
		l, err := libcni.NetworkConfFromBytes(content) // as before there were folders
		if err != nil {
			return false
		}
		old = types(l)
		if l, err = libcni.NetworkConfFromFile(b.path()); err != nil {
			return false
		}
		now = types(l)
		return slices.Equal(old, want) && slices.Equal(now, want)
	}, 30*time.Second, time.Millisecond, "%v", want)
}
