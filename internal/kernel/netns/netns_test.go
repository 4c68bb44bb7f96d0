package netns_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

func TestOpenRefusesWhatIsNoNetworkNamespace(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{
		"", filepath.Join(dir, "missing"), plain, filepath.Join(plain, "below"), fifo, dir,
		"/proc/self/ns/mnt", "/proc/4194305/ns/net",
	} {
		_, err := netns.Open(path)
		require.ErrorIs(t, err, core.ErrNetnsGone, path)
		_, err = netns.Identify(path)
		require.ErrorIs(t, err, core.ErrNetnsGone, path)
	}
}

func TestDoRunsInsideAndComesBack(t *testing.T) {
	h := netnstest.New(t)
	before := threadNS(t)
	var inside, nested string
	require.NoError(t, h.Do(func() error {
		inside = threadNS(t)
		other := netnstest.New(t)
		return other.Do(func() error { nested = threadNS(t); return nil })
	}))
	require.NotEqual(t, before, inside)
	require.NotEqual(t, inside, nested)
	require.Equal(t, before, threadNS(t))

	oops := errors.New("oops")
	require.ErrorIs(t, h.Do(func() error { return oops }), oops)
	require.PanicsWithValue(t, "boom", func() { _ = h.Do(func() error { panic("boom") }) })
	require.Equal(t, before, threadNS(t))
}

func TestDoGivesChildrenTheNamespace(t *testing.T) {
	h := netnstest.New(t)
	var want string
	var out []byte
	require.NoError(t, h.Do(func() (err error) {
		want = threadNS(t)
		out, err = exec.Command("readlink", "/proc/self/ns/net").Output()
		return err
	}))
	require.Equal(t, want, strings.TrimSpace(string(out)))
}

func TestDoInParallelKeepsNamespacesApart(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		h := netnstest.New(t)
		want, err := h.Cookie()
		require.NoError(t, err)
		wg.Go(func() {
			for range 200 {
				_ = h.Do(func() error {
					cur, err := netns.Current()
					if err != nil {
						t.Error(err)
						return nil
					}
					defer func() { _ = cur.Close() }()
					if got, err := cur.Cookie(); err != nil || got != want {
						t.Errorf("cookie %d, %v; want %d", got, err, want)
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
	cur, err := netns.Current()
	require.NoError(t, err)
	require.True(t, netns.IsHost(cur))
	require.NoError(t, cur.Close())
}

func TestDoWithoutAHandleStays(t *testing.T) {
	before := threadNS(t)
	var ns *netns.Handle
	require.NoError(t, ns.Do(func() error {
		require.Equal(t, before, threadNS(t))
		return nil
	}))
	require.ErrorIs(t, ns.Do(func() error { return os.ErrClosed }), os.ErrClosed)
}

func TestDoOnAClosedHandleFails(t *testing.T) {
	h := netnstest.New(t)
	require.NoError(t, h.Close())
	require.Error(t, h.Do(func() error { return nil }))
}

func TestIdentityOutlivesNothing(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	path := netnstest.Bind(t, a)
	id, err := netns.Identify(path)
	require.NoError(t, err)
	require.NotZero(t, id.Cookie)
	require.Equal(t, path, id.Path)

	h, err := netns.Verify(id)
	require.NoError(t, err)
	require.True(t, h.Same(a))
	require.False(t, h.Same(b))
	require.False(t, netns.IsHost(h))
	require.NoError(t, h.Close())

	old := id
	old.BootID = "an-earlier-boot"
	_, err = netns.Verify(old)
	require.ErrorIs(t, err, core.ErrNetnsGone)

	netnstest.Unbind(t, path)
	_, err = netns.Verify(id)
	require.ErrorIs(t, err, core.ErrNetnsGone, "the file left by the mount")

	netnstest.Rebind(t, b, path)
	_, err = netns.Verify(id)
	require.ErrorIs(t, err, core.ErrNetnsGone, "path reused by another namespace")
	h, err = netns.Verify(core.Netns{Path: path})
	require.NoError(t, err, "without a cookie only the path counts")
	require.True(t, h.Same(b))
	require.NoError(t, h.Close())
}

// TestCookieIsTheSockets: however the cookie is found, it is what a socket inside
// tells, for that is what journals of earlier agents hold.
func TestCookieIsTheSockets(t *testing.T) {
	for range 3 {
		h := netnstest.New(t)
		have, err := h.Cookie()
		require.NoError(t, err)
		require.NoError(t, h.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			defer unix.Close(fd)
			want, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
			require.NoError(t, err)
			require.Equal(t, want, have)
			return nil
		}))
	}
}

func TestBootID(t *testing.T) {
	id, err := netns.BootID()
	require.NoError(t, err)
	require.Len(t, id, 36)
}

func BenchmarkDo(b *testing.B) {
	h := netnstest.New(b)
	for b.Loop() {
		_ = h.Do(func() error { return nil })
	}
}

func threadNS(t *testing.T) string {
	s, err := os.Readlink("/proc/thread-self/ns/net")
	require.NoError(t, err)
	return s
}
