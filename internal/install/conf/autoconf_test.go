package conf

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/stretchr/testify/require"
)

const (
	calico = `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[
		{"type":"calico","ipam":{"type":"calico-ipam"}},
		{"type":"portmap","capabilities":{"portMappings":true},"snat":true},
		{"type":"bandwidth","capabilities":{"bandwidth":true,"ips":false}}]}`
	ancient = `{"cniVersion":"0.2.0","name":"old","type":"bridge","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}`
	multus  = `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","delegates":[` + ancient + `]}`
	ours    = `{"cniVersion":"1.1.0","name":"x","plugins":[{"type":"fairlead"}]}`
)

// bed runs a Writer on private folders.
type bed struct {
	t    *testing.T
	dir  string
	w    *Writer
	stop func()
}

func newBed(t *testing.T, c Config) *bed {
	t.Helper()
	b := &bed{t: t, dir: filepath.Join(t.TempDir(), "net.d")}
	if c.Dir == "" {
		c.Dir = b.dir
	}
	c.Log = slog.New(slog.DiscardHandler)
	require.NoError(t, os.MkdirAll(b.dir, 0o755))
	b.w = New(c)
	return b
}

func (b *bed) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.w.Run(ctx) })
	b.stop = func() { cancel(); wg.Wait() }
	b.t.Cleanup(b.stop)
}

// put writes a file as plugins do: in place, not at once.
func (b *bed) put(name, content string) {
	b.t.Helper()
	f, err := os.Create(filepath.Join(b.dir, name))
	require.NoError(b.t, err)
	_, err = f.WriteString(content[:len(content)/2])
	require.NoError(b.t, err)
	time.Sleep(5 * time.Millisecond)
	_, err = f.WriteString(content[len(content)/2:])
	require.NoError(b.t, errors.Join(err, f.Close()))
}

func (b *bed) remove(name string) {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.dir, name)))
}

func (b *bed) path() string { return filepath.Join(b.dir, Name) }

// await waits until our file exists and fits.
func (b *bed) await(fits func(list) bool) list {
	b.t.Helper()
	var l list
	require.Eventually(b.t, func() bool {
		raw, err := os.ReadFile(b.path())
		if err != nil {
			return false
		}
		l = list{}
		if json.Unmarshal(raw, &l) != nil {
			return false // a test wrote that
		}
		_, err = libcni.NetworkConfFromBytes(raw)
		return err == nil && fits(l)
	}, 30*time.Second, 2*time.Millisecond, "status: %v", b.w.Status())
	return l
}

func around(name string) func(list) bool {
	return func(l list) bool {
		var inner struct{ Name string }
		return len(l.Plugins[0].Delegates) == 1 && json.Unmarshal(l.Plugins[0].Delegates[0], &inner) == nil && inner.Name == name
	}
}

func whatever(list) bool { return true }

func TestOwnDefaultNetworkNeedsNoMaster(t *testing.T) {
	b := newBed(t, Config{Options: Options{Capabilities: map[string]bool{"bandwidth": false, "ips": true}}})
	b.run()
	l := b.await(whatever)
	require.Equal(t, list{CNIVersion: "1.0.0", CNIVersions: []string{"1.0.0", "1.1.0"}, Name: "fairlead", Plugins: []plugin{{
		Type: "fairlead", Capabilities: map[string]bool{
			"portMappings": true, "bandwidth": false, "ips": true, "io.kubernetes.cri.pod-annotations": true,
		},
	}}}, l, "host ports need no plugin behind us")
	require.Eventually(t, func() bool { return b.w.Status() == nil }, 30*time.Second, time.Millisecond)
}

func TestMasterIsAwaitedAndFollowed(t *testing.T) {
	b := newBed(t, Config{Master: Auto})
	b.run()
	require.Eventually(t, func() bool { return errors.Is(b.w.Status(), errWaiting) }, 30*time.Second, time.Millisecond)
	require.NoFileExists(t, b.path(), "nothing empty")

	b.put("20-old.conf", ancient)
	l := b.await(around("old"))
	require.Equal(t, "1.0.0", l.CNIVersion, "of the list: the runtime's; results are converted")
	require.JSONEq(t, ancient, string(l.Plugins[0].Delegates[0]))

	b.put("10-calico.conflist", calico)
	l = b.await(around("k8s-pod-network"))
	require.Equal(t, map[string]bool{
		"portMappings": true, "bandwidth": true, "io.kubernetes.cri.pod-annotations": true,
	}, l.Plugins[0].Capabilities)

	b.remove("10-calico.conflist")
	b.await(around("old"))
	b.remove("20-old.conf")
	require.Eventually(t, func() bool { return errors.Is(b.w.Status(), errWaiting) }, 30*time.Second, time.Millisecond)
	b.await(around("old")) // ours stays, with the last that was known
}

func TestNeverNested(t *testing.T) {
	b := newBed(t, Config{Master: Auto})
	b.put("00-multus.conf", multus)
	b.put("05-other.conflist", ours)
	b.put("06-broken.conflist", `{"name":`)
	b.put("07-empty.conflist", " ")
	b.put("09-noname.conf", `{"cniVersion":"1.0.0","type":"bridge"}`)
	b.put("30-old.conf.bak", calico)
	b.run()
	require.Eventually(t, func() bool { return errors.Is(b.w.Status(), errWaiting) }, 30*time.Second, time.Millisecond)
	require.ErrorContains(t, b.w.Status(), "00-multus.conf: it calls Fairlead or Multus itself")
	require.NoFileExists(t, b.path())
	b.put("20-old.conf", ancient)
	b.await(around("old"))
}

func TestNamedMaster(t *testing.T) {
	elsewhere := t.TempDir()
	b := newBed(t, Config{Master: "calico.conf", MasterDir: elsewhere})
	b.put("10-other.conf", ancient)
	b.run()
	require.Eventually(t, func() bool { return errors.Is(b.w.Status(), errWaiting) }, 30*time.Second, time.Millisecond)
	require.ErrorContains(t, b.w.Status(), "calico.conf is not there")
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "calico.conf"), []byte(calico), 0o600))
	b.await(around("k8s-pod-network"))
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "calico.conf"), []byte(multus), 0o600))
	require.Eventually(t, func() bool { return errors.Is(b.w.Status(), ErrNested) }, 30*time.Second, time.Millisecond)
	b.await(around("k8s-pod-network"))
}

func TestNameAndVersion(t *testing.T) {
	raw, err := Around([]byte(ancient), Options{CNIVersion: "0.4.0", Force: true, KeepName: true, Socket: "/run/x.sock",
		Capabilities: map[string]bool{"mac": true}})
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"0.4.0","name":"old","plugins":[{"type":"fairlead","socket":"/run/x.sock","capabilities":{"io.kubernetes.cri.pod-annotations":true,"mac":true},
		"delegates":[{"cniVersion":"0.4.0","name":"old","type":"bridge","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}]}]}`, string(raw))
	raw, err = Around([]byte(ancient), Options{CNIVersion: "1.0.0", Capabilities: map[string]bool{"io.kubernetes.cri.pod-annotations": false}})
	require.NoError(t, err)
	require.JSONEq(t, `{"cniVersion":"1.0.0","name":"fairlead","plugins":[{"type":"fairlead","capabilities":{"io.kubernetes.cri.pod-annotations":false},"delegates":[`+ancient+`]}]}`, string(raw))
}

func TestNothingBeforeTheAgentIsReady(t *testing.T) {
	var ready atomic.Bool
	asked := make(chan struct{}, 100)
	b := newBed(t, Config{Ready: func(context.Context) error {
		asked <- struct{}{}
		if !ready.Load() {
			return errors.New("no switch yet")
		}
		return nil
	}})
	b.run()
	<-asked
	<-asked
	require.NoFileExists(t, b.path())
	require.Error(t, b.w.Status())
	ready.Store(true)
	b.await(whatever)
}

func TestTheFileIsKeptAndStays(t *testing.T) {
	b := newBed(t, Config{})
	b.run()
	b.await(whatever)
	b.remove(Name)
	b.await(whatever)
	b.put(Name, "")
	b.await(whatever)
	b.put(Name, ours)
	b.await(func(l list) bool { return l.Name == "fairlead" })
	b.stop()
	require.FileExists(t, b.path())
	entries, err := os.ReadDir(b.dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing temporary")
}

func TestUsersOwnFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.conf")
	b := newBed(t, Config{File: file})
	b.run()
	require.Eventually(t, func() bool { return errors.Is(b.w.Status(), errWaiting) }, 30*time.Second, time.Millisecond)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.WriteFile(file, []byte(multus), 0o600)) // a single configuration becomes a list
	l := b.await(whatever)
	require.Equal(t, "multus-cni-network", l.Name)
	require.Equal(t, "multus", l.Plugins[0].Type)
	require.NoError(t, os.WriteFile(file, []byte(ours), 0o600))
	b.await(func(l list) bool { return l.Name == "x" })
}

func TestTheDirectoryIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	b := newBed(t, Config{Dir: dir})
	b.dir = dir
	b.run()
	b.await(whatever)
}

func TestWhatCannotBeWrittenIsSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	b := newBed(t, Config{Dir: filepath.Join(file, "net.d")})
	b.run()
	require.Eventually(t, func() bool {
		err := b.w.Status()
		return err != nil && !errors.Is(err, errStarting) && !errors.Is(err, errWaiting)
	}, 30*time.Second, time.Millisecond)
}
