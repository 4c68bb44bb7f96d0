package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/cri/enginetest"
	"github.com/fairlead/fairlead/internal/cri/stream"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

type bed struct {
	*stream.Server
	t *testing.T
	e *enginetest.Engine
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, e: enginetest.Start(t)}
	var err error
	b.Server, err = stream.New(t.Context(), stream.Config{
		Docker: b.e.Client, Ours: func(map[string]string) bool { return true }, Netns: b.netns, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- b.Serve(t.Context()) }()
	t.Cleanup(func() {
		b.Close()
		require.NoError(t, <-served)
	})
	return b
}

// netns is what the sandboxes' service would know.
func (b *bed) netns(ctx context.Context, id string) (string, error) {
	res, err := b.e.ContainerInspect(ctx, id, docker.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/ns/net", res.Container.State.Pid), nil
}

// protocols are the two ways in which clients come.
var protocols = map[string]func(string) (remotecommand.Executor, error){
	"spdy": func(to string) (remotecommand.Executor, error) {
		u, err := url.Parse(to)
		if err != nil {
			return nil, err
		}
		return remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	},
	"websocket": func(to string) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, http.MethodGet, to, "v4.channel.k8s.io")
	},
}

// exec runs a command as kubectl would.
func (b *bed) exec(protocol, id string, o remotecommand.StreamOptions, cmd ...string) error {
	b.t.Helper()
	res, err := b.Exec(b.t.Context(), &runtime.ExecRequest{
		ContainerId: id, Cmd: cmd, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	require.NoError(b.t, err)
	return b.connect(protocol, res.Url, o)
}

func (b *bed) attach(protocol, id string, o remotecommand.StreamOptions) error {
	b.t.Helper()
	res, err := b.Attach(b.t.Context(), &runtime.AttachRequest{
		ContainerId: id, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	require.NoError(b.t, err)
	return b.connect(protocol, res.Url, o)
}

func (b *bed) connect(protocol, to string, o remotecommand.StreamOptions) error {
	b.t.Helper()
	x, err := protocols[protocol](to)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	return x.StreamWithContext(ctx, o)
}

// sizes gives one size and then waits for the end.
type sizes struct {
	size *remotecommand.TerminalSize
	end  <-chan struct{}
}

func (s *sizes) Next() *remotecommand.TerminalSize {
	if size := s.size; size != nil {
		s.size = nil
		return size
	}
	<-s.end
	return nil
}

func TestExec(t *testing.T) {
	b := newBed(t)
	id := b.e.Run(nil, "sleep", "3600")
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var out, errs bytes.Buffer
			err := b.exec(protocol, id, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}, "sh", "-c", "echo out; echo err >&2")
			require.NoError(t, err)
			require.Equal(t, "out\n", out.String())
			require.Equal(t, "err\n", errs.String())

			err = b.exec(protocol, id, remotecommand.StreamOptions{Stdout: io.Discard}, "sh", "-c", "exit 7")
			var exit clientexec.CodeExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 7, exit.Code)

			err = b.exec(protocol, id, remotecommand.StreamOptions{Stdout: io.Discard}, "/no/such/program")
			require.ErrorAs(t, err, &exit)
			require.Contains(t, []int{126, 127}, exit.Code)
		})
		t.Run(protocol+" input", func(t *testing.T) {
			// Version 4 of the protocol over websockets has no end of input.
			sent := strings.Repeat("0123456789abcde\n", 1<<16)
			var out bytes.Buffer
			err := b.exec(protocol, id, remotecommand.StreamOptions{Stdin: strings.NewReader(sent), Stdout: &out}, "head", "-c", fmt.Sprint(len(sent)))
			require.NoError(t, err)
			require.Equal(t, sent, out.String())
		})
		t.Run(protocol+" terminal", func(t *testing.T) {
			var out bytes.Buffer
			end := make(chan struct{})
			in, typed := io.Pipe()
			go func() {
				// The size is there when it is: ask until it is.
				_, _ = typed.Write([]byte("until [ \"$(stty size)\" = '33 101' ]; do sleep 0.05; done; echo got $((40+2)); exit 3\n"))
			}()
			err := b.exec(protocol, id, remotecommand.StreamOptions{
				Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: &sizes{&remotecommand.TerminalSize{Width: 101, Height: 33}, end},
			}, "sh")
			close(end)
			_ = typed.Close()
			var exit clientexec.CodeExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 3, exit.Code)
			require.Contains(t, out.String(), "got 42\r\n")
		})
	}
	t.Run("the end of the input reaches the command", func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, b.exec("spdy", id, remotecommand.StreamOptions{Stdin: strings.NewReader("a\nb\n"), Stdout: &out}, "wc", "-l"))
		require.Equal(t, "2\n", out.String())
	})
}

func TestExecRefuses(t *testing.T) {
	b := newBed(t)
	stopped := b.e.Create(nil, "true")
	for code, req := range map[codes.Code]*runtime.ExecRequest{
		codes.NotFound:           {ContainerId: "nobody", Cmd: []string{"true"}, Stdout: true},
		codes.FailedPrecondition: {ContainerId: stopped, Cmd: []string{"true"}, Stdout: true},
		codes.InvalidArgument:    {ContainerId: stopped, Cmd: []string{"true"}},
	} {
		_, err := b.Exec(t.Context(), req)
		require.Equal(t, code, status.Code(err), "%v", err)
		require.ErrorContains(t, err, req.ContainerId)
		_, err = b.Attach(t.Context(), &runtime.AttachRequest{ContainerId: req.ContainerId, Stdout: req.Stdout})
		require.Equal(t, code, status.Code(err), "%v", err)
	}
	_, err := b.PortForward(t.Context(), &runtime.PortForwardRequest{PodSandboxId: "nobody"})
	require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
	res, err := http.Get("http://" + b.Address() + "/exec/guessed")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNotFound, res.StatusCode)
}

func TestExecSync(t *testing.T) {
	b := newBed(t)
	id := b.e.Run(nil, "sleep", "3600")
	run := func(timeout int64, cmd ...string) (*runtime.ExecSyncResponse, error) {
		return b.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
	}
	res, err := run(60, "sh", "-c", "echo out; echo err >&2; exit 5")
	require.NoError(t, err)
	require.Equal(t, []string{"out\n", "err\n", "5"}, []string{string(res.Stdout), string(res.Stderr), fmt.Sprint(res.ExitCode)})

	res, err = run(60, "/no/such/program")
	require.NoError(t, err)
	require.Contains(t, []int32{126, 127}, res.ExitCode)

	res, err = run(60, "sh", "-c", "head -c 20000000 /dev/zero; head -c 17000000 /dev/zero >&2; exit 4")
	require.NoError(t, err)
	require.Equal(t, []int{16 << 20, 16 << 20, 4}, []int{len(res.Stdout), len(res.Stderr), int(res.ExitCode)})

	res, err = run(60, "sh", "-c", "sleep 1234 & echo hi")
	require.NoError(t, err, "what stays behind in the background is not waited for")
	require.Equal(t, "hi\n", string(res.Stdout))

	_, err = run(1, "sh", "-c", "trap '' TERM; sleep 4321; true")
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	require.Empty(t, b.processes(id, "4321"), "the command and its children are gone when the answer comes")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "5432"}})
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(b.processes(id, "5432")) > 0 }, time.Minute, 20*time.Millisecond)
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-ended))
	require.Empty(t, b.processes(id, "5432"), "who asked has gone, and so has the command")

	_, err = b.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: "nobody", Cmd: []string{"true"}})
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = b.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: id})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// processes of a container whose command line has a word.
func (b *bed) processes(id, word string) (out []string) {
	b.t.Helper()
	top, err := b.e.ContainerTop(b.t.Context(), id, docker.ContainerTopOptions{})
	require.NoError(b.t, err)
	for _, p := range top.Processes {
		if line := strings.Join(p, " "); strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return out
}

func TestAttach(t *testing.T) {
	b := newBed(t)
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			id := b.e.Run(func(o *docker.ContainerCreateOptions) { o.Config.OpenStdin = true },
				"sh", "-c", `while read l; do echo "out $l"; echo "err $l" >&2; [ "$l" = end ] && exit; done`)
			for i := range 2 { // the second client finds the input still open
				var out, errs buffer
				in, typed := io.Pipe()
				ended := make(chan error, 1)
				go func() {
					ended <- b.attach(protocol, id, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errs})
				}()
				word := []string{"one", "end"}[i]
				_, err := fmt.Fprintln(typed, word)
				require.NoError(t, err)
				require.Eventually(t, func() bool { return out.String() == "out "+word+"\n" && errs.String() == "err "+word+"\n" },
					time.Minute, 20*time.Millisecond)
				_ = typed.Close()
				if protocol == "spdy" || word == "end" {
					require.NoError(t, <-ended)
				}
			}
		})
		t.Run(protocol+" terminal", func(t *testing.T) {
			id := b.e.Run(func(o *docker.ContainerCreateOptions) { o.Config.OpenStdin, o.Config.Tty = true, true }, "sh")
			var out buffer
			end := make(chan struct{})
			// Nobody's terminal ends while the shell runs: Docker would take that for
			// the end of the attachment, which may come before the size.
			still, keys := io.Pipe()
			err := b.attach(protocol, id, remotecommand.StreamOptions{
				Stdin:  io.MultiReader(strings.NewReader("until [ \"$(stty size)\" = '44 102' ]; do sleep 0.05; done; echo got $((40+2)); exit\n"), still),
				Stdout: &out, Tty: true, TerminalSizeQueue: &sizes{&remotecommand.TerminalSize{Width: 102, Height: 44}, end},
			})
			require.NoError(t, keys.Close())
			close(end)
			require.NoError(t, err)
			wait := b.e.ContainerWait(t.Context(), id, docker.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
			require.Zero(t, (<-wait.Result).StatusCode)
		})
	}
	t.Run("once", func(t *testing.T) {
		id := b.e.Run(func(o *docker.ContainerCreateOptions) { o.Config.OpenStdin, o.Config.StdinOnce = true, true }, "wc", "-l")
		var out buffer
		require.NoError(t, b.attach("spdy", id, remotecommand.StreamOptions{Stdin: strings.NewReader("a\nb\nc\n"), Stdout: &out}))
		require.Equal(t, "3\n", out.String())
	})
}

func TestPortForward(t *testing.T) {
	b := newBed(t)
	id := b.e.Run(func(o *docker.ContainerCreateOptions) {
		o.HostConfig.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0"} // Docker has it off
	}, "sleep", "3600")
	b.listen(id, "127.0.0.1:81", func(c *net.TCPConn) {
		_, _ = io.Copy(c, c)
		_, _ = io.WriteString(c, "bye4")
	})
	b.listen(id, "[::1]:82", func(c *net.TCPConn) { _, _ = io.WriteString(c, "only6") })

	res, err := b.PortForward(t.Context(), &runtime.PortForwardRequest{PodSandboxId: id})
	require.NoError(t, err)
	u, err := url.Parse(res.Url)
	require.NoError(t, err)
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	require.NoError(t, err)
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), []string{"0:81", "0:82", "0:83"}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err)
	}
	defer func() {
		close(stop)
		<-ended
	}()
	ports, err := f.GetPorts()
	require.NoError(t, err)
	ask := func(port uint16, say string) string {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		// The client resets a refused connection at once; what came back tells.
		_, _ = io.WriteString(conn, say)
		_ = conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(conn)
		return string(got)
	}
	require.Equal(t, "only6", ask(ports[1].Local, ""), "what listens on ::1 alone")
	big := strings.Repeat("0123456789abcdef", 1<<16)
	require.Equal(t, big+"bye4", ask(ports[0].Local, big), "both ways to the end, after the client's half")
	require.Empty(t, ask(ports[2].Local, "x"))
}

// listen serves a port inside a container's network namespace.
func (b *bed) listen(id, address string, serve func(*net.TCPConn)) {
	b.t.Helper()
	path, err := b.netns(b.t.Context(), id)
	require.NoError(b.t, err)
	ns, err := netns.Open(path)
	require.NoError(b.t, err)
	defer ns.Close()
	var l net.Listener
	require.NoError(b.t, ns.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}))
	b.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
}
