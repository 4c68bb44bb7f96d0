package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// FairleadName and FairleadTag are the name of Fairlead's image.
const (
	FairleadName = "fairlead.local/fairlead"
	FairleadTag  = "checkout"
)

// Fairlead is what deploy/Dockerfile makes, of programs of this machine: agent
// and plugin of a folder, nft and iptables with their libraries, and busybox in
// place of Debian's shell.
func Fairlead(dir string) ([]byte, error) {
	i := newImage(FairleadName+":"+FairleadTag, "fairlead", "agent")
	if err := i.addBusybox(nil); err != nil {
		return nil, err
	}
	i.add(tar.Header{Typeflag: tar.TypeDir, Name: "run/", Mode: 0o755}, nil)
	i.link("var/run", "../run")
	for _, name := range []string{"fairlead", "fairlead-cni"} {
		if err := i.addFile(filepath.Join(dir, name), "bin/"+name); err != nil {
			return nil, err
		}
	}
	if err := i.addFilters(); err != nil {
		return nil, fmt.Errorf("image %s: %w (run: scripts/setup cluster)", i.name, err)
	}
	return i.archive()
}

// addFilters puts nft and iptables into an image: the programs, the libraries
// that they are linked with, and iptables' extensions, which it loads by name.
func (i *image) addFilters() error {
	const nft, iptables = "/usr/sbin/nft", "/usr/sbin/xtables-nft-multi"
	libraries, err := linked(nft, iptables)
	if err != nil {
		return err
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return err
	}
	for _, file := range slices.Concat(libraries, extensions) {
		if err := i.addFile(file, strings.TrimPrefix(file, "/")); err != nil {
			return err
		}
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		i.link("bin/"+name, filepath.Base(iptables))
	}
	return errors.Join(i.addFile(nft, "bin/nft"), i.addFile(iptables, "bin/"+filepath.Base(iptables)))
}

// linked lists the libraries of programs, the dynamic linker included, as ldd
// tells: "name => path (address)" or "path (address)".
func linked(programs ...string) ([]string, error) {
	out, err := exec.Command("ldd", programs...).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", strings.Join(programs, " "), err)
	}
	var files []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") && !slices.Contains(files, word) {
			files = append(files, word)
		}
	}
	return files, nil
}

// addFile puts a program or library of this machine into an image.
func (i *image) addFile(file, name string) error {
	b, err := os.ReadFile(file)
	if err == nil {
		i.add(tar.Header{Name: name, Mode: 0o755}, b)
	}
	return err
}
