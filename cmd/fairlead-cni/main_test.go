package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "fairlead-cni-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "kube-ovn") // any name will do
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// run executes the plugin as a runtime does: only CNI variables, stdin closed
// after conf.
func run(t *testing.T, conf string, env ...string) (stdout string, status int) {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(conf)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	require.Empty(t, errOut.String())
	return out.String(), cmd.ProcessState.ExitCode()
}

func env(command string) []string {
	return []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_NETNS=/run/netns/x", "CNI_IFNAME=eth0",
		"CNI_ARGS=K8S_POD_NAME=p;K8S_POD_NAMESPACE=ns", "CNI_PATH=/opt/cni/bin",
	}
}

func confFor(socket string) string {
	return `{"cniVersion":"1.0.0","name":"n","type":"fairlead","socket":"` + socket + `"}`
}

func cniError(t *testing.T, stdout string) cni.Error {
	t.Helper()
	var e cni.Error
	require.NoError(t, json.Unmarshal([]byte(stdout), &e), stdout)
	return e
}

// talk is how a test's agent treats one connection.
type talk func(c net.Conn)

// listen serves every connection with fn on a socket of its own.
func listen(t *testing.T, fn talk) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fn(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return socket
}

// accept reads a request as the agent does and says `100 Continue` on the way.
func accept(c net.Conn) (cni.Request, error) {
	var req cni.Request
	r := bufio.NewReader(c)
	head, err := http.ReadRequest(r)
	if err != nil {
		return req, err
	}
	if head.Method != http.MethodPost || (head.URL.Path != cni.PathCNI && head.URL.Path != cni.PathJoin) || head.Header.Get("Expect") != "100-continue" {
		return req, fmt.Errorf("not the plugin's request: %v", head)
	}
	fmt.Fprint(c, "HTTP/1.1 100 Continue\r\n\r\n")
	body, err := io.ReadAll(head.Body)
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err == nil && (req.Token != "") != (head.URL.Path == cni.PathJoin) {
		err = fmt.Errorf("token %q at %s", req.Token, head.URL.Path)
	}
	return req, err
}

func answer(c net.Conn, r cni.Response) {
	body, _ := json.Marshal(r)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(body), body)
}

// saying accepts the call, writes text and hangs up.
func saying(text string) talk {
	return func(c net.Conn) {
		if _, err := accept(c); err == nil {
			fmt.Fprint(c, text)
		}
	}
}

func intents(t *testing.T, socket string) []cni.Request {
	t.Helper()
	dir := filepath.Join(filepath.Dir(socket), cni.IntentsDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	var out []cni.Request
	for _, e := range entries {
		require.False(t, strings.HasPrefix(e.Name(), "."), e.Name())
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		var r cni.Request
		require.NoError(t, json.Unmarshal(raw, &r))
		out = append(out, r)
	}
	return out
}

func TestCallReachesTheAgentAndIsAcknowledged(t *testing.T) {
	type seen struct {
		req cni.Request
		ack []byte
		err error
	}
	calls := make(chan seen, 1)
	socket := listen(t, func(c net.Conn) {
		var s seen
		s.req, s.err = accept(c)
		answer(c, cni.Response{Output: []byte(`{"cniVersion":"1.0.0"}`)})
		s.ack, _ = io.ReadAll(c)
		calls <- s
	})
	conf := confFor(socket)
	out, status := run(t, conf, env("ADD")...)
	require.Equal(t, `{"cniVersion":"1.0.0"}`, out)
	require.Zero(t, status)
	s := <-calls
	require.NoError(t, s.err)
	require.Equal(t, []byte{cni.Ack}, s.ack)
	require.Positive(t, s.req.Boottime)
	s.req.Boottime = 0
	require.Equal(t, cni.Request{
		Command: "ADD", ContainerID: "c1", Netns: "/run/netns/x", IfName: "eth0",
		Args: "K8S_POD_NAME=p;K8S_POD_NAMESPACE=ns", Path: "/opt/cni/bin", Config: []byte(conf),
	}, s.req)
}

// TestCallWithAToken: it goes to the agent that gave the token, wherever the
// configuration says that an agent is; a DEL needs no agent.
func TestCallWithAToken(t *testing.T) {
	calls := make(chan cni.Request, 1)
	socket := listen(t, func(c net.Conn) {
		req, err := accept(c)
		if err != nil {
			return
		}
		answer(c, cni.Response{Output: []byte("{}")})
		calls <- req
	})
	conf := `{"cniVersion":"1.0.0","name":"n","type":"macvlan","ipam":{"type":"kube-ovn","server_socket":"/nowhere/agent.sock"}}`
	with := []string{cni.EnvToken + "=t1", cni.EnvSocket + "=" + socket}
	out, status := run(t, conf, append(env("ADD"), with...)...)
	require.Equal(t, "{}", out)
	require.Zero(t, status)
	require.Equal(t, "t1", (<-calls).Token)
	out, status = run(t, conf, append(env("DEL"), cni.EnvToken+"=t1", cni.EnvSocket+"=/nowhere/agent.sock")...)
	require.Empty(t, out)
	require.Zero(t, status)
	require.NoFileExists(t, "/nowhere")
	_, status = run(t, conf, append(env("ADD"), cni.EnvToken+"=t1", cni.EnvSocket+"=/nowhere/agent.sock")...)
	require.Equal(t, 1, status)
}

func TestBigConfigurationAndBigAnswerPass(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 900<<10)
	socket := listen(t, func(c net.Conn) {
		if _, err := accept(c); err == nil {
			answer(c, cni.Response{Output: big})
		}
	})
	conf := strings.TrimSuffix(confFor(socket), "}") + `,"pad":"` + strings.Repeat("y", 700<<10) + `"}`
	out, status := run(t, conf, env("ADD")...)
	require.Zero(t, status)
	require.Len(t, out, len(big))
}

func TestFailedAnswerIsPrintedAndExits1(t *testing.T) {
	socket := listen(t, func(c net.Conn) {
		if _, err := accept(c); err == nil {
			answer(c, cni.Response{Output: []byte(`{"code":7,"msg":"m"}`), Failed: true})
		}
	})
	out, status := run(t, confFor(socket), env("CHECK")...)
	require.Equal(t, `{"code":7,"msg":"m"}`, out)
	require.Equal(t, 1, status)
}

func TestAnswerNobodyReadIsNotAcknowledged(t *testing.T) {
	acks := make(chan int, 1)
	socket := listen(t, func(c net.Conn) {
		if _, err := accept(c); err == nil {
			answer(c, cni.Response{Output: []byte(`{}`)})
		}
		rest, _ := io.ReadAll(c)
		acks <- len(rest)
	})
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	cmd := exec.Command(binary)
	cmd.Env, cmd.Stdin, cmd.Stdout = env("ADD"), strings.NewReader(confFor(socket)), w
	require.Error(t, cmd.Run())
	require.Zero(t, <-acks)
}

// TestWithoutAnAgent: every way in which no agent answers has one outcome.
func TestWithoutAnAgent(t *testing.T) {
	ways := map[string]func(t *testing.T) string{
		"no socket":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "deep", "er", "agent.sock") },
		"dead socket": dead,
		"silent":      silent,
		"garbage":     func(t *testing.T) string { return listen(t, func(c net.Conn) { fmt.Fprint(c, "SSH-2.0\r\n\r\n") }) },
		"endless head": func(t *testing.T) string {
			return listen(t, func(c net.Conn) { c.Write(bytes.Repeat([]byte("h"), 64<<10)) })
		},
		"closes":        func(t *testing.T) string { return listen(t, func(net.Conn) {}) },
		"closes midway": func(t *testing.T) string { return listen(t, saying("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{")) },
		"no length":     func(t *testing.T) string { return listen(t, saying("HTTP/1.1 200 OK\r\n\r\n{}")) },
		"bad length": func(t *testing.T) string {
			return listen(t, saying("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{}"))
		},
		"not JSON": func(t *testing.T) string {
			return listen(t, saying("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"))
		},
		"not HTTP": func(t *testing.T) string { return listen(t, saying("hello world, dear\r\n\r\n")) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := way(t)
			t.Run("commands", func(t *testing.T) {
				for command, code := range map[string]uint{"ADD": 11, "CHECK": 11, "GC": 11, "STATUS": 50} {
					t.Run(command, func(t *testing.T) {
						t.Parallel()
						out, status := run(t, strings.Replace(confFor(socket), "1.0.0", "1.1.0", 1), env(command)...)
						e := cniError(t, out)
						require.Equal(t, 1, status)
						require.Equal(t, code, e.Code, out)
						require.Equal(t, "1.1.0", e.CNIVersion)
						require.Contains(t, e.Msg, socket)
						require.NotEmpty(t, e.Details)
					})
				}
			})
			require.Empty(t, intents(t, socket))
			for range 2 {
				out, status := run(t, confFor(socket), env("DEL")...)
				require.Empty(t, out)
				require.Zero(t, status)
			}
			left := intents(t, socket)
			require.Len(t, left, 2)
			require.Equal(t, "DEL", left[0].Command)
			require.Equal(t, "c1", left[0].ContainerID)
			require.Equal(t, confFor(socket), string(left[1].Config))
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			require.NoError(t, err)
			require.Equal(t, strings.TrimSpace(string(boot)), left[0].BootID)
			require.Positive(t, left[0].Boottime)
			require.Greater(t, left[1].Boottime, left[0].Boottime)
		})
	}
}

// TestSlowAgent: an agent that gets no turn for a while has the call all the same.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	socket := listen(t, func(c net.Conn) {
		time.Sleep(2 * time.Second)
		if _, err := accept(c); err == nil {
			answer(c, cni.Response{Output: []byte("{}")})
		}
	})
	out, status := run(t, confFor(socket), env("ADD")...)
	require.Equal(t, "{}", out)
	require.Zero(t, status)
}

// dead is a socket file that nobody listens on any more.
func dead(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	return path
}

// silent takes connections and never says a word.
func silent(t *testing.T) string {
	hang := make(chan struct{})
	socket := listen(t, func(net.Conn) { <-hang })
	t.Cleanup(func() { close(hang) }) // before listen waits for its connections
	return socket
}

func TestIntentThatCannotBeWrittenIsAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, cni.IntentsDir), nil, 0o600)) // a file in its place
	out, status := run(t, confFor(filepath.Join(dir, "agent.sock")), env("DEL")...)
	require.Equal(t, 1, status)
	require.Equal(t, uint(5), cniError(t, out).Code)
}

func TestRefusalOfALivingAgentLeavesNoIntent(t *testing.T) {
	for status, code := range map[int]uint{403: 5, 413: 5, 500: 5, 429: 11, 503: 11} {
		text := fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Length: 4\r\n\r\nwhy\n", status)
		for _, fn := range []talk{saying(text), func(c net.Conn) { http.ReadRequest(bufio.NewReader(c)); fmt.Fprint(c, text) }} {
			socket := listen(t, fn)
			out, exit := run(t, confFor(socket), env("DEL")...)
			require.Equal(t, 1, exit)
			e := cniError(t, out)
			require.Equal(t, code, e.Code, out)
			require.Equal(t, "why", e.Details)
			require.Empty(t, intents(t, socket))
		}
	}
}

func TestVersionNeedsNoAgent(t *testing.T) {
	for conf, want := range map[string]string{
		`{"cniVersion":"0.4.0","socket":"/nonexistent"}`: "0.4.0",
		`{"cniVersion":"7.0.0"}`:                         "1.1.0",
		`{}`:                                             "1.1.0",
		``:                                               "1.1.0",
		`junk`:                                           "1.1.0",
	} {
		out, status := run(t, conf, "CNI_COMMAND=VERSION")
		require.Zero(t, status)
		require.JSONEq(t, `{"cniVersion":"`+want+`","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`, out)
	}
}

func TestBadCallsAreRefusedHere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	without := func(command, name string) []string {
		var out []string
		for _, v := range env(command) {
			if !strings.HasPrefix(v, name+"=") {
				out = append(out, v)
			}
		}
		return out
	}
	for _, c := range []struct {
		env  []string
		code uint
		name string
		conf string
	}{
		{nil, 4, "CNI_COMMAND", confFor(socket)},
		{env("FROB"), 4, "FROB", confFor(socket)},
		{env("add"), 4, "add", confFor(socket)},
		{without("ADD", "CNI_CONTAINERID"), 4, "CNI_CONTAINERID", confFor(socket)},
		{without("ADD", "CNI_IFNAME"), 4, "CNI_IFNAME", confFor(socket)},
		{without("ADD", "CNI_NETNS"), 4, "CNI_NETNS", confFor(socket)},
		{without("CHECK", "CNI_NETNS"), 4, "CNI_NETNS", confFor(socket)},
		{without("DEL", "CNI_CONTAINERID"), 4, "CNI_CONTAINERID", confFor(socket)},
		{[]string{"CNI_COMMAND=ADD"}, 4, "CNI_CONTAINERID, CNI_IFNAME, CNI_NETNS", confFor(socket)},
		{env("CHECK"), 1, "incompatible CNI version", strings.Replace(confFor(socket), "1.0.0", "0.3.1", 1)},
		{env("GC"), 1, "incompatible CNI version", confFor(socket)},
		{env("ADD"), 6, "standard input", confFor(socket)[:20]},
		{env("CHECK"), 6, "standard input", confFor(socket) + "}"},
		{env("GC"), 6, "standard input", ""},
		{env("STATUS"), 6, "standard input", "[]"},
		{env("ADD"), 6, "too large", confFor(socket) + strings.Repeat(" ", 900<<10)},
		{env("ADD"), 6, "too large", confFor(socket) + strings.Repeat(" ", 2<<20)},
	} {
		out, status := run(t, c.conf, c.env...)
		require.Equal(t, 1, status)
		e := cniError(t, out)
		require.Equal(t, c.code, e.Code, out)
		require.Contains(t, e.Msg, c.name)
	}
	out, status := run(t, confFor(socket), without("DEL", "CNI_NETNS")...)
	require.Zero(t, status, out)
	require.Len(t, intents(t, socket), 1, "only the good DEL left something")
}

func TestErrorsAreValidJSONWhateverTheConfSays(t *testing.T) {
	out, _ := run(t, "{\"cniVersion\":\"\\u0001\\\"\xff\",\"type\":\"fairlead\",\"socket\":\"/no\\\\\\\"such\\u0007\"}", env("ADD")...)
	require.Equal(t, uint(11), cniError(t, out).Code)
}

func TestTheBinaryStaysSmall(t *testing.T) {
	info, err := os.Stat(binary)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(3_000_000))
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	allowed := map[string]bool{"github.com/fairlead/fairlead/api/cni": true, "github.com/fairlead/fairlead/cmd/fairlead-cni": true}
	for _, dep := range strings.Fields(string(deps)) {
		first, _, _ := strings.Cut(dep, "/")
		require.True(t, !strings.Contains(first, ".") || allowed[dep], "%s is not of the standard library", dep)
		switch dep {
		case "net", "net/http", "os/exec", "fmt", "encoding/json", "reflect":
			t.Errorf("%s costs start-up time or starts processes", dep)
		}
	}
}
