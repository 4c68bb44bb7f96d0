// Package image makes container images out of programs of this machine, without
// a registry and without a build tool: archives of one layer, in the form of
// `docker save`, which every runtime loads.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Names of the images.
const (
	BusyboxName = "fairlead.local/busybox:1"
	PauseName   = "fairlead.local/pause:1"
)

// image is one layer and its configuration, as `docker save` writes them.
type image struct {
	name    string
	also    []string // other names
	entry   string   // the program that command's words are for; "": none
	command []string
	layer   bytes.Buffer
	tar     *tar.Writer
}

func newImage(name string, command ...string) *image {
	i := &image{name: name, command: command}
	i.tar = tar.NewWriter(&i.layer)
	return i
}

// add puts a file, folder or link into the layer; the first error of the
// writer comes back from Close.
func (i *image) add(h tar.Header, content []byte) {
	h.Size, h.Format = int64(len(content)), tar.FormatUSTAR
	if err := i.tar.WriteHeader(&h); err == nil {
		_, _ = i.tar.Write(content)
	}
}

// archive finishes the layer and returns a docker-archive.
func (i *image) archive() ([]byte, error) {
	if err := i.tar.Close(); err != nil {
		return nil, fmt.Errorf("image %s: %w", i.name, err)
	}
	layer := digest(i.layer.Bytes())
	starts := map[string]any{"Cmd": i.command, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
	if i.entry != "" {
		starts["Entrypoint"] = []string{i.entry}
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config":  starts,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
		"history": []any{map[string]any{"created": "1970-01-01T00:00:00Z"}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": digest(config) + ".json", "RepoTags": append([]string{i.name}, i.also...), "Layers": []string{layer + "/layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	out := newImage("")
	out.add(tar.Header{Name: digest(config) + ".json", Mode: 0o644}, config)
	out.add(tar.Header{Name: layer + "/layer.tar", Mode: 0o644}, i.layer.Bytes())
	out.add(tar.Header{Name: "manifest.json", Mode: 0o644}, manifest)
	err = out.tar.Close()
	return out.layer.Bytes(), err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Pause holds one program, which waits for its end.
func Pause(program string) ([]byte, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	i := newImage(PauseName, "/pause")
	i.add(tar.Header{Name: "pause", Mode: 0o755}, b)
	return i.archive()
}

// Busybox is a shell and its applets (ip, ping, nc, httpd, wget, ...), from
// Debian's busybox-static.
func Busybox() ([]byte, error) {
	i := newImage(BusyboxName, "sh")
	if err := i.addBusybox(nil); err != nil {
		return nil, err
	}
	return i.archive()
}

// addBusybox puts busybox, its applets and the folders that it needs into an image;
// not those applets of which the image has another.
func (i *image) addBusybox(others map[string]string) error {
	const busybox = "/bin/busybox"
	b, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("%w (run: scripts/setup test)", err)
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("list busybox's applets: %w", err)
	}
	for _, d := range []string{"bin", "etc", "root", "tmp", "var"} {
		i.add(tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755}, nil)
	}
	i.add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"))
	i.add(tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nnogroup:x:65534:\n"))
	i.add(tar.Header{Name: "bin/busybox", Mode: 0o755}, b)
	for _, a := range strings.Fields(string(applets)) {
		if _, other := others[a]; !other && a != "busybox" {
			i.link("bin/"+a, "busybox")
		}
	}
	return nil
}

func (i *image) link(name, to string) {
	i.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil)
}
