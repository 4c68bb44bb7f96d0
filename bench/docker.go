package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// docker runs Docker Engine and, over it, `fairlead cri` on a node whose agent
// runs already, with the configuration of the pods' network. The node ends with
// the engine, and when there is an error.
func (b *bench) docker(n *node, plugins, conf string) (*engine, error) {
	e, err := newEngine(n)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	err = b.startDocker(e)
	if err == nil {
		err = b.startShim(e, shimSocket, plugins, conf)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("docker: %w", err), e.close())
	}
	return e, nil
}

func (b *bench) startDocker(e *engine) error {
	dir := filepath.Join(e.node.dir, "docker")
	storage, err := stacking(e.node.dir, "overlay2", "vfs")
	if err != nil {
		return err
	}
	argv := []string{"dockerd", "--host=unix://" + dockerSocket, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
		"--storage-driver=" + storage, "--data-root=" + dir, "--exec-root=/run/docker", "--pidfile=/run/docker.pid", "--log-level=error",
		"--exec-opt=native.cgroupdriver=cgroupfs", "--cgroup-parent=" + e.cgroups.Name}
	if !capable(unix.CAP_SYS_RESOURCE) {
		runtime := filepath.Join(b.root, "internal", "testbed", "docker", "runtime.sh")
		copied := filepath.Join(e.node.dir, "runtime")
		script, err := os.ReadFile(runtime)
		if err := errors.Join(err, os.WriteFile(copied, script, 0o700)); err != nil {
			return err
		}
		argv = append(argv, "--add-runtime=noadj="+copied, "--default-runtime=noadj")
		b.note("row 13: this machine has no CAP_SYS_RESOURCE, so Docker's runc stands behind a script that asks for less; its time is in both figures")
	}
	d, err := e.start("dockerd", argv...)
	if err != nil {
		return err
	}
	tar, err := image.Pause(b.kube("pause"))
	if err != nil {
		return err
	}
	return d.await(func() error { return load(e.node.client(dockerSocket), tar) })
}

// load gives an engine an image, once it answers.
func load(c *http.Client, tar []byte) error {
	resp, err := c.Post("http://docker/images/load", "application/x-tar", bytes.NewReader(tar))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(said, []byte(`"error"`))) {
		err = &hopeless{fmt.Errorf("load an image: %s: %s", resp.Status, said)}
	}
	return err
}

// startShim runs `fairlead cri` with a folder of its own and connects the engine
// with it.
func (b *bench) startShim(e *engine, socket, plugins, conf string) error {
	name := strings.TrimSuffix(filepath.Base(socket), ".sock")
	dir := filepath.Join(e.node.dir, name)
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "10-bench.conflist"), []byte(conf), 0o600))
	if err != nil {
		return err
	}
	d, err := e.start("fairlead-cri", b.bin("fairlead"), "cri", "--listen=unix://"+socket, "--root-dir=/var/lib/fairlead/"+name,
		"--docker-host=unix://"+dockerSocket, "--sandbox-image="+image.PauseName, "--cni-conf-dir="+dir, "--cni-bin-dir="+plugins)
	if err != nil {
		return err
	}
	return e.connect(socket, d)
}

// emptied is another shim over the same Docker, whose pods have a network
// namespace and nothing in it.
func (b *bench) emptied(e *engine, plugins string) (*engine, error) {
	other := &engine{node: e.node, cgroups: e.cgroups, procs: e.procs}
	return other, b.startShim(other, "/run/fairlead/empty.sock", plugins, emptyList)
}

// capable tells whether this process has a capability.
func capable(number int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[number/32].Effective&(1<<(number%32)) != 0
}

// dockerVersion is what the program says of itself.
func dockerVersion(n *node) string {
	out, err := n.output("dockerd", "--version")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(out)
}
