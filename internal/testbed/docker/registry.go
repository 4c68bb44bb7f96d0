package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/fairlead/fairlead/internal/testbed"
)

const registryConfig = `version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: @DIR@/data}, delete: {enabled: true}}
http: {addr: "127.0.0.1:80"}
`

// Registries makes names of registries mean one of the node's own, empty and
// without TLS. It gives the flags for the engine, which must start afterwards:
// it may remember what the names meant.
func Registries(t testing.TB, n *testbed.Node, names ...string) []string {
	t.Helper()
	dir := filepath.Join(n.Dir, "registry")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	config := filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(registryConfig, "@DIR@", dir)), 0o600))
	n.Run("sh", "-c", fmt.Sprintf("echo 127.0.0.1 %s >>/etc/hosts", strings.Join(names, " ")))
	d := start(t, n, "docker-registry", "serve", config)
	t.Cleanup(d.end)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		out, err := n.Try("busybox", "wget", "-q", "-O", "-", "http://127.0.0.1/v2/")
		if err == nil {
			break
		}
		require.True(t, time.Now().Before(deadline), "the registry does not answer: %s %v %s", out, err, &d.log)
	}
	var flags []string
	for _, name := range names {
		flags = append(flags, "--insecure-registry="+name)
	}
	return flags
}

// Registry runs Debian's docker-registry on the port of the node's loopback until
// the test's end. With a user it wants basic authentication; an empty one lets
// everybody in.
func Registry(t testing.TB, n *testbed.Node, port int, user, password string) (address string) {
	t.Helper()
	address = fmt.Sprintf("127.0.0.1:%d", port)
	dir := filepath.Join(n.Dir, fmt.Sprintf("registry%d", port))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	conf := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}}\nhttp: {addr: '%s'}\n", dir, address)
	if user != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(dir+"/htpasswd", []byte(user+":"+string(hash)+"\n"), 0o600))
		conf += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s/htpasswd}}\n", dir)
	}
	require.NoError(t, os.WriteFile(dir+"/config.yml", []byte(conf), 0o600))
	d := start(t, n, "docker-registry", "serve", dir+"/config.yml")
	t.Cleanup(d.end)
	require.Eventually(t, func() bool {
		_, err := n.Try("busybox", "nc", "-w", "1", "127.0.0.1", fmt.Sprint(port), "-e", "true")
		return err == nil
	}, patience, 50*time.Millisecond, "the registry answers: %s", &d.log)
	return address
}

// Docker runs the command line client.
func (e *Engine) Docker(args ...string) string {
	e.t.Helper()
	return e.n.Run(append([]string{"docker", "--host=" + e.Host}, args...)...)
}

// Push builds an image from a folder with a Dockerfile and gives it to its
// registry; the engine does not keep it.
func (e *Engine) Push(folder string, names ...string) {
	e.t.Helper()
	args := []string{"build", "-q", "--network=none"}
	for _, n := range names {
		args = append(args, "-t", n)
	}
	e.Docker(append(args, folder)...)
	for _, n := range names {
		e.Docker("push", "-q", n)
	}
	e.Docker(append([]string{"rmi", "-f"}, names...)...)
}
