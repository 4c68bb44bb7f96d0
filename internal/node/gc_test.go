package node_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// images are the names of all that containerd has.
func (b *bed) images() []string {
	b.t.Helper()
	conn, err := podruntime.Dial("unix://" + filepath.Join(b.Dir, "run/containerd/containerd.sock"))
	require.NoError(b.t, err)
	defer conn.Close()
	list, err := cri.NewImageServiceClient(conn).ListImages(b.t.Context(), &cri.ListImagesRequest{})
	require.NoError(b.t, err)
	var out []string
	for _, i := range list.GetImages() {
		out = append(out, i.GetRepoTags()...)
	}
	return out
}

// addImage gives containerd an image with one file.
func (b *bed) addImage(name string) {
	b.t.Helper()
	archive := func(files map[string][]byte) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for name, data := range files {
			require.NoError(b.t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
			_, err := w.Write(data)
			require.NoError(b.t, err)
		}
		require.NoError(b.t, w.Close())
		return out.Bytes()
	}
	layer := archive(map[string][]byte{"file": []byte(name)})
	conf, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	require.NoError(b.t, err)
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	require.NoError(b.t, err)
	file := filepath.Join(b.Dir, "added.tar")
	require.NoError(b.t, os.WriteFile(file, archive(map[string][]byte{"layer.tar": layer, "config.json": conf, "manifest.json": manifest}), 0o600))
	programs, err := kube.Programs()
	require.NoError(b.t, err)
	b.Run(filepath.Join(programs, "ctr"), "--namespace=k8s.io", "images", "import", file)
	require.NoError(b.t, os.Remove(file))
}

// TestDisk: images that nothing uses go when the disk is full, others never;
// logs that grow are put aside, and the oldest parts go.
func TestDisk(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const unused = "fairlead.local/unused:1"
	p := web(0)
	p.Annotations = nil
	p.Spec.Containers[0].Command[2] = "i=0; trap 'exit 0' TERM; while :; do i=$((i+1)); echo line $i; [ $((i%100)) != 0 ] || { sleep 0.2 & wait $!; }; done"
	b.startNode() // whose disk is not full enough
	b.write(p)
	b.awaitPod("web-0", ready)
	b.addImage(unused)
	b.killNode()
	b.startNode("--image-gc-high", "1", "--image-gc-low", "0", "--image-gc-min-age", "0s", "--image-gc-period", "500ms",
		"--log-max-size", "20000", "--log-max-files", "3")
	b.await("the end of the unused image", func() error {
		if all := b.images(); slices.Contains(all, unused) {
			return fmt.Errorf("%s", all)
		}
		return nil
	})
	require.Contains(t, b.images(), image.BusyboxName)
	require.Contains(t, b.images(), image.PauseName)
	b.await("logs put aside", func() error {
		parts, err := filepath.Glob(filepath.Join(b.Dir, "disk/var/log/pods/*/c/0.log*"))
		if err == nil && (len(parts) < 3 || strings.HasSuffix(parts[1], ".1")) {
			err = fmt.Errorf("%s", parts)
		}
		return err
	})
	first := b.fairlead("", "logs", "web-0").out
	b.await("the oldest part's end", func() error {
		if now := b.fairlead("", "logs", "web-0").out; strings.HasPrefix(now, first[:strings.Index(first, "\n")+1]) {
			return fmt.Errorf("it begins with %.20q", now)
		}
		return nil
	})
	testGapless(t, b)
	b.erase("web-0")
	b.awaitEmpty()
	b.await("the end of the image", func() error {
		if all := b.images(); slices.Contains(all, image.BusyboxName) {
			return fmt.Errorf("%s", all)
		}
		return nil
	})
	require.Contains(t, b.images(), image.PauseName, "the sandboxes' own")
	b.requireNoLeaks()
}

// testGapless reads a log over its parts.
func testGapless(t *testing.T, b *bed) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(b.fairlead("", "logs", "web-0", "--tail", "500").out), "\n")
	// What the container writes after the place was found is told as well, as by kubelet.
	require.GreaterOrEqual(t, len(lines), 500)
	var before int
	for i, l := range lines {
		var n int
		_, err := fmt.Sscanf(l, "line %d", &n)
		require.NoError(t, err)
		require.True(t, i == 0 || n == before+1, "%s after %d", l, before)
		before = n
	}
}

// TestLogFolders: those that were made for pods of which nothing else is left go;
// a folder of a pod that waits, one with a log, and another node's stay.
func TestLogFolders(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	dir := filepath.Join(b.Dir, "disk/var/log/pods")
	folder := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		return path
	}
	swept := func(path string) {
		b.await("the end of "+path, func() error {
			_, err := os.Stat(path)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return errors.Join(errors.New("it is still there"), err)
		})
	}
	log, other := folder("default_log-node1_a"), folder("default_other-node2_b")
	require.NoError(t, os.WriteFile(filepath.Join(log, "0.log"), nil, 0o600))
	late := folder("default_late-node1_c")
	waits := web(1)
	waits.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "nowhere"}
	b.write(waits)
	b.startNode()
	swept(late)
	has := filepath.Join(dir, "default_web-1-node1_"+string(waits.UID))
	b.await("the folder of the pod that waits", func() error {
		_, err := os.Stat(has)
		return err
	})
	swept(folder("default_later-node1_d"))
	for _, path := range []string{has, log, other} {
		require.DirExists(t, path)
	}
	require.NoError(t, errors.Join(os.RemoveAll(log), os.RemoveAll(other)))
	b.erase("web-1")
	b.awaitEmpty()
	b.requireNoLeaks()
}
