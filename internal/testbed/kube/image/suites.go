package image

import (
	"archive/tar"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the images that Kubernetes' own tests run, of the pinned version, and of
// the cluster's DNS.
const (
	AgnhostName = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
	CoreDNSName = "fairlead.local/coredns:1"
)

// agnhostToo are images that agnhost's serves as: it waits, has a shell, programs that
// are linked with glibc, and those of a node.
var agnhostToo = []string{
	"registry.k8s.io/pause:3.10.2",
	"registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
	"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0",
	"registry.k8s.io/e2e-test-images/nginx:1.15-4",
	"registry.k8s.io/build-image/distroless-iptables:v0.9.3",
}

// agnhostPrograms are what agnhost's Dockerfile installs beside it, of this machine,
// by their names in the image: a shell too, since that of busybox runs its own applets
// whatever lies in PATH.
var agnhostPrograms = map[string]string{
	"sh": "/bin/dash", "bash": "/bin/bash", "curl": "/usr/bin/curl", "dig": "/usr/bin/dig", "nc": "/bin/nc.openbsd", "wget": "/usr/bin/wget",
	"ip": "/bin/ip", "ss": "/bin/ss", "conntrack": "/usr/sbin/conntrack", "ipcs": "/usr/bin/ipcs", "getent": "/usr/bin/getent",
}

// Agnhost is what upstream's Dockerfile makes, of the program of a folder: each test
// runs one of its commands, or a shell with curl and dig.
func Agnhost(dir string) ([]byte, error) {
	i := newImage(AgnhostName, "pause")
	i.also, i.entry = agnhostToo, "/agnhost"
	if err := i.addBusybox(agnhostPrograms); err != nil {
		return nil, err
	}
	var files []string
	for name, file := range agnhostPrograms {
		if err := i.addFile(file, "bin/"+name); err != nil {
			return nil, fmt.Errorf("image %s: %w (run: scripts/setup soak)", i.name, err)
		}
		files = append(files, file)
	}
	slices.Sort(files)
	libraries, err := linked(files...)
	if err != nil {
		return nil, err
	}
	for _, file := range libraries {
		if err := i.addFile(file, strings.TrimPrefix(file, "/")); err != nil {
			return nil, err
		}
	}
	i.add(tar.Header{Typeflag: tar.TypeDir, Name: "uploads/", Mode: 0o755}, nil)
	i.link("agnhost-2", "agnhost")
	for _, name := range []string{"agnhost", "localhost.crt", "localhost.key", "coredns"} { // the pair is of its command porter
		if err := i.addFile(filepath.Join(dir, name), name); err != nil {
			return nil, err
		}
	}
	return i.archive()
}

// CoreDNS is the cluster's DNS, of the program of a folder.
func CoreDNS(dir string) ([]byte, error) {
	i := newImage(CoreDNSName)
	i.entry = "/coredns"
	if err := i.addFile(filepath.Join(dir, "coredns"), "coredns"); err != nil {
		return nil, err
	}
	return i.archive()
}
