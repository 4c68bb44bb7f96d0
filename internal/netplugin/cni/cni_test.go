package cni_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/store"
)

// TestChoice: the first valid file by its name's bytes; each of the others has
// its reason, and what was good stays in force when nothing is.
func TestChoice(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good", "better", "old")
	reason := func() string {
		t.Helper()
		err := b.m.Status(t.Context())
		require.Error(t, err)
		return err.Error()
	}
	require.Contains(t, reason(), "no network configuration in")
	for name, c := range map[string]struct{ text, why string }{
		"00-broken.conflist":  {`{"cniVersion"`, "unexpected end"},
		"01-list.conf":        {list("1.0.0", "n", "good", ""), "a list of plugins belongs into a .conflist"},
		"02-none.conflist":    {`{"cniVersion":"1.0.0","name":"n","plugins":[]}`, "no plugin"},
		"03-missing.conflist": {list("1.0.0", "n", "missing", ""), `failed to find plugin "missing"`},
		"04-version.conflist": {list("9.9.9", "n", "good", ""), "9.9.9"},
		"05-typeless.json":    {`{"cniVersion":"1.0.0"}`, "type"},
		"05-nameless.json":    {`{"cniVersion":"1.0.0","type":"good"}`, "missing network name"},
		"05-path.conflist":    {list("1.0.0", "../n", "good", ""), "invalid characters found in network name"},
	} {
		b.conf(name, c.text)
		require.Contains(t, reason(), name)
		require.Contains(t, reason(), c.why, name)
	}
	b.conf(".hidden.conflist", list("1.0.0", "hidden", "good", ""))
	b.conf("06-good.conflist.bak", list("1.0.0", "backup", "good", ""))
	require.NotContains(t, reason(), "hidden")
	require.NotContains(t, reason(), "bak")

	pod := b.pod("1")
	attachedBy := func(want string) {
		t.Helper()
		b.up(pod)
		require.Equal(t, want, b.told("ADD")["name"])
		b.down(pod)
		require.Equal(t, want, b.told("DEL")["name"])
	}
	b.conf("20-good.conflist", list("1.0.0", "good", "good", ""))
	require.NoError(t, b.m.Status(t.Context()), "the invalid ones are passed over")
	attachedBy("good")
	require.Contains(t, b.log.String(), "03-missing.conflist")
	b.conf("10-better.conf", `{"cniVersion":"0.4.0","name":"better","type":"better"}`)
	attachedBy("better")
	b.install("missing")
	attachedBy("n")
	b.drop("bin/missing")
	require.NoError(t, b.m.Status(t.Context()))
	b.drop("conf/10-better.conf", "conf/20-good.conflist", "conf/03-missing.conflist")
	attachedBy("better") // a fresh look finds nothing: the last good one stays
	require.Contains(t, b.log.String(), "the last good one stays in force")
}

// TestWatch: a change is seen without anybody asking, in a folder that is there,
// and, each period, in one that comes later.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		conf   string
		period time.Duration
	}{
		"a change in the folder":      {"conf", time.Hour},
		"a folder that was not there": {"later", 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "good")
			p := b.plugin(c.conf, c.period)
			require.NoError(t, p.Init(t.Context(), b, netplugin.Settings{}))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { p.Run(ctx); close(ended) }()
			defer func() { stop(); <-ended }()
			folder := filepath.Join(b.dir, c.conf)
			require.NoError(t, os.MkdirAll(folder, 0o755))
			tmp := filepath.Join(b.dir, "tmp")
			require.NoError(t, os.WriteFile(tmp, []byte(list("1.0.0", "renamed-in", "good", "")), 0o600))
			// Again and again: the watch may begin after the first one.
			require.Eventually(t, func() bool {
				_ = os.Rename(tmp, filepath.Join(folder, "10-good.conflist"))
				_ = os.WriteFile(filepath.Join(folder, "other"), nil, 0o600)
				return containsAll(b.log.String(), "network configuration in force", "network=renamed-in")
			}, patience, 20*time.Millisecond)
		})
	}
}

// TestWhatPluginsAreTold: arguments, and the capabilities that they declare.
func TestWhatPluginsAreTold(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good", "plain")
	b.conf("10.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"good","capabilities":{"portMappings":true,"bandwidth":true,
		"ipRanges":true,"dns":true,"io.kubernetes.cri.pod-annotations":true,"cgroupPath":true,"ips":true}}]}`)
	require.ErrorContains(t, b.m.Status(t.Context()), "pod CIDR")
	require.NoError(t, b.m.SetPodCIDR(t.Context(), "10.5.0.0/24,fd05::/64"))
	require.NoError(t, b.m.SetPodCIDR(t.Context(), "10.6.0.0/24"))
	require.NoError(t, b.m.Status(t.Context()))
	pod := b.pod("1")
	pod.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "10M", "x": "y"}
	pod.DNS = netplugin.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc"}, Options: []string{"ndots:5"}}
	pod.Cgroup = "/pods/1"
	b.port["1"] = []netplugin.PortMapping{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp", HostIP: "10.0.0.1"}}
	b.up(pod)
	want := map[string]any{
		"portMappings":                      []any{map[string]any{"hostPort": 80., "containerPort": 8080., "protocol": "tcp", "hostIP": "10.0.0.1"}},
		"bandwidth":                         map[string]any{"ingressRate": 1e7, "ingressBurst": 2147483647.},
		"ipRanges":                          []any{[]any{map[string]any{"subnet": "10.5.0.0/24"}}, []any{map[string]any{"subnet": "fd05::/64"}}},
		"dns":                               map[string]any{"servers": []any{"10.0.0.10"}, "searches": []any{"svc"}, "options": []any{"ndots:5"}},
		"io.kubernetes.cri.pod-annotations": map[string]any{"kubernetes.io/ingress-bandwidth": "10M", "x": "y"},
		"cgroupPath":                        "/pods/1",
	}
	require.Equal(t, want, b.told("ADD")["runtimeConfig"])
	st, err := b.m.GetPodNetworkStatus(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, "10.5.0.9", st.IP.String(), "of eth0")
	require.Len(t, st.IPs, 2)
	netnstest.Do(t, b.ns, func() error { // as the plugin loopback leaves it
		lo, err := net.InterfaceByName("lo")
		if err == nil {
			require.NotZero(t, lo.Flags&net.FlagUp)
		}
		return err
	})

	b.port["1"], pod.Annotations = nil, nil
	b.conf("10.conflist", list("1.0.0", "n", "plain", ""))
	b.start()
	b.down(pod)
	require.Equal(t, want, b.told("DEL")["runtimeConfig"], "what it was attached with")
	b.up(pod)
	require.NotContains(t, b.told("ADD"), "runtimeConfig", "it declares nothing")
}

// TestDetachedByWhatIsRecorded whatever the folder says by then: also after a
// restart, without configuration, namespace, or record.
func TestDetachedByWhatIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBed(t, "one", "two")
	b.conf("10.conflist", list("1.0.0", "first", "one", ""))
	kept, gone, damaged, failed, unknown := b.pod("kept"), b.pod("gone"), b.pod("damaged"), b.pod("failed"), b.pod("unknown")
	for _, p := range []netplugin.Pod{kept, gone, damaged} {
		b.up(p)
	}
	b.refuse("ADD", "no room")
	require.ErrorContains(t, b.m.SetUpPod(t.Context(), failed), "no room")
	b.drop("calls/refuse-ADD")
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "state/pods/damaged"), []byte("{"), 0o600))
	netns := b.path["gone"]
	delete(b.path, "gone")
	b.drop("conf/10.conflist")
	b.start()
	b.calls()

	// Without any configuration.
	b.down(kept)
	require.Equal(t, []string{"one DEL kept " + b.path["kept"]}, b.calls())
	b.down(unknown)
	require.Empty(t, b.calls(), "nothing says that it was ever attached")
	// With another one.
	b.conf("10.conflist", list("1.0.0", "second", "two", ""))
	b.down(gone)
	require.Equal(t, []string{"one DEL gone -"}, b.calls(), "its namespace %s is gone", netns)
	b.down(damaged)
	require.Equal(t, []string{"one DEL damaged " + b.path["damaged"]}, b.calls(), "by what libcni kept")
	b.down(failed)
	require.Equal(t, []string{"one DEL failed " + b.path["failed"]}, b.calls(), "its ADD may have done something")
	b.down(unknown)
	require.Equal(t, []string{"two DEL unknown " + b.path["unknown"]}, b.calls(), "a plugin may know more")
	b.down(netplugin.Pod{Sandbox: "nameless"})
	require.Empty(t, b.calls())
	for _, p := range []netplugin.Pod{kept, gone, damaged, failed} { // again: there is no record any more
		b.down(p)
	}
	left, err := os.ReadDir(filepath.Join(b.dir, "state/pods"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestADelThatFailsIsTriedAgain: the record stays until it succeeds.
func TestADelThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good")
	b.conf("10.conflist", list("1.0.0", "n", "good", ""))
	pod := b.pod("1")
	b.up(pod)
	b.refuse("DEL", "busy")
	require.ErrorContains(t, b.m.TearDownPod(t.Context(), pod), "busy")
	b.drop("calls/refuse-DEL")
	b.calls()
	b.start()
	require.NoError(t, b.m.Collect(t.Context(), func(context.Context) (map[string]bool, error) { return map[string]bool{}, nil }))
	require.Equal(t, []string{"good DEL 1 " + b.path["1"]}, b.calls(), "nobody else will")
	require.NoError(t, b.m.Collect(t.Context(), func(context.Context) (map[string]bool, error) { return map[string]bool{}, nil }))
	require.Empty(t, b.calls())
}

// TestNothingToDetach: what no plugin was run for needs no DEL. The record of a
// pod whose configuration has no name is one of an earlier version.
func TestNothingToDetach(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good")
	b.conf("10.conflist", list("1.0.0", "n", "good", ""))
	require.NoError(t, b.m.Status(t.Context()))
	b.drop("bin/good")
	require.ErrorContains(t, b.m.Status(t.Context()), `10.conflist: failed to find plugin "good"`, "the program is gone")
	pod := b.pod("1")
	require.ErrorContains(t, b.m.SetUpPod(t.Context(), pod), `failed to find plugin "good"`)
	b.drop("conf/10.conflist")
	b.down(pod)
	for _, conf := range []string{`{"name":"","plugins":[{"type":"good"}]}`, `{"plugins":[{"type":"good"}]}`} {
		pod := b.pod("2")
		text, err := json.Marshal(store.Record{Pod: pod, Conf: json.RawMessage(conf)})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "state/pods/2"), text, 0o600))
		b.start()
		b.down(pod)
		require.NoFileExists(t, filepath.Join(b.dir, "state/pods/2"))
	}
	require.Empty(t, b.calls())
}

// TestRefusedTwice: a plugin that refuses ADD and DEL alike is done with, and the
// others of its list have their DEL; as long as the refusals differ it is tried on.
func TestRefusedTwice(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good", "other")
	b.conf("10.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"good"},{"type":"other"}]}`)
	pod := b.pod("1")
	b.refuseOf("other", "ADD", 11, "no such bridge")
	require.ErrorContains(t, b.m.SetUpPod(t.Context(), pod), "no such bridge")
	require.Equal(t, []string{"good ADD 1 " + b.path["1"]}, b.calls())
	b.refuseOf("other", "DEL", 11, "busy")
	require.ErrorContains(t, b.m.TearDownPod(t.Context(), pod), "busy")
	b.start()
	require.ErrorContains(t, b.m.TearDownPod(t.Context(), pod), "busy", "the record stays")
	require.Empty(t, b.calls())
	b.refuseOf("other", "DEL", 11, "no such bridge")
	b.down(pod)
	require.Equal(t, []string{"good DEL 1 " + b.path["1"]}, b.calls())

	b.refuseOf("other", "ADD", 7, "bad key")
	require.Error(t, b.m.SetUpPod(t.Context(), pod))
	b.refuseOf("other", "DEL", 1, "bad version")
	b.calls()
	b.down(pod)
	require.Equal(t, []string{"good DEL 1 " + b.path["1"]}, b.calls())

	b.drop("calls/refuse-other-ADD")
	b.up(pod)
	require.ErrorContains(t, b.m.TearDownPod(t.Context(), pod), "bad version", "what was attached is detached")
}

// TestPluginsFromTheFolderBeside the list are part of what a pod is detached by.
func TestPluginsFromTheFolderBeside(t *testing.T) {
	t.Parallel()
	b := newBed(t, "one", "two")
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "conf/n"), 0o755))
	b.conf("n/10-two.conf", `{"type":"two"}`)
	b.conf("10.conflist", list("1.1.0", "n", "one", ""))
	pod := b.pod("1")
	b.up(pod)
	require.Equal(t, []string{"one ADD 1 " + b.path["1"], "two ADD 1 " + b.path["1"]}, b.calls())
	b.drop("conf/n/10-two.conf")
	b.start()
	b.down(pod)
	require.Equal(t, []string{"two DEL 1 " + b.path["1"], "one DEL 1 " + b.path["1"]}, b.calls())
}

// TestStatusNamesWhoRefuses: which file, which plugin, and what it says.
func TestStatusNamesWhoRefuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, "one", "two")
	b.conf("10.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"one"},{"type":"two"}]}`)
	require.NoError(t, b.m.Status(t.Context()))
	b.refuse("STATUS", "out of addresses")
	err := b.m.Status(t.Context())
	for _, part := range []string{"10.conflist", "plugin one", "STATUS", "out of addresses"} {
		require.ErrorContains(t, err, part)
	}
	b.conf("10.conflist", list("1.0.0", "n", "one", ""))
	require.NoError(t, b.m.Status(t.Context()), "before CNI 1.1 there is no such question")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good")
	for conf, checked := range map[string]bool{
		list("1.0.0", "n", "good", ""): true,
		list("0.3.1", "n", "good", ""): false,
		`{"cniVersion":"1.0.0","name":"n","disableCheck":true,"plugins":[{"type":"good"}]}`: false,
	} {
		b.conf("10.conflist", conf)
		pod := b.pod("1")
		require.ErrorIs(t, b.m.CheckPod(t.Context(), pod), netplugin.ErrUnchecked, "not attached")
		b.up(pod)
		if !checked {
			require.ErrorIs(t, b.m.CheckPod(t.Context(), pod), netplugin.ErrUnchecked, conf)
			b.down(pod)
			continue
		}
		require.NoError(t, b.m.CheckPod(t.Context(), pod))
		b.refuse("CHECK", "the address is gone")
		require.ErrorContains(t, b.m.CheckPod(t.Context(), pod), "the address is gone")
		b.drop("calls/refuse-CHECK")
		b.down(pod)
	}
}

// TestGC: plugins are told who is there, and no sandbox that lives is missing.
func TestGC(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good", "old")
	b.conf("10.conflist", list("1.1.0", "n", "good", ""))
	here, lost, unrecorded := b.pod("here"), b.pod("lost"), b.pod("unrecorded")
	for _, p := range []netplugin.Pod{here, lost, unrecorded} {
		b.up(p)
	}
	require.NoError(t, os.Remove(filepath.Join(b.dir, "state/pods/unrecorded")))
	b.start()
	b.calls()
	live := func(context.Context) (map[string]bool, error) {
		return map[string]bool{"here": true, "unrecorded": true}, nil
	}
	require.NoError(t, b.m.Collect(t.Context(), live))
	require.Equal(t, []string{"good DEL lost " + b.path["lost"], "good GC - -"}, b.calls())
	valid := []any{
		map[string]any{"containerID": "here", "ifname": "eth0"}, map[string]any{"containerID": "unrecorded", "ifname": "eth0"},
	}
	require.Equal(t, valid, b.told("GC")["cni.dev/valid-attachments"])
	b.conf("10.conflist", `{"cniVersion":"1.1.0","name":"n","disableGC":true,"plugins":[{"type":"good"}]}`)
	require.NoError(t, b.m.Collect(t.Context(), live))
	require.Empty(t, b.calls(), "switched off")
	b.conf("10.conflist", list("1.0.0", "other", "old", ""))
	require.NoError(t, b.m.Collect(t.Context(), live))
	require.Equal(t, []string{"good GC - -"}, b.calls(), "the network of a pod, though not in force; the one in force has no GC")
	b.refuse("GC", "not now")
	require.ErrorContains(t, b.m.Collect(t.Context(), live), "not now")
}

// TestPluginBeingInstalled: a program that is being written when a pod starts is
// started when it is there.
func TestPluginBeingInstalled(t *testing.T) {
	t.Parallel()
	b := newBed(t, "good")
	b.conf("10.conflist", list("1.0.0", "n", "good", ""))
	pod := b.pod("1")
	written, err := os.OpenFile(filepath.Join(b.dir, "bin/good"), os.O_WRONLY, 0)
	require.NoError(t, err)
	up := make(chan error, 1)
	go func() { up <- b.m.SetUpPod(t.Context(), pod) }()
	time.Sleep(500 * time.Millisecond) // how long it takes
	require.NoError(t, written.Close())
	require.NoError(t, <-up)
	b.down(pod)
}
