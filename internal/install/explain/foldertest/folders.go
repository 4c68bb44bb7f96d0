// Package foldertest has folders of CNI configurations, as nodes have them and as
// they should not, for tests: those of package explain, and those that ask the
// runtimes' own code about the same folders.
package foldertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/install/explain"
)

// Folder is one folder, and who takes what from it. A winner is the name of a
// file, "" where pods get no network.
type Folder struct {
	Name string
	// Files by name; a value that begins with "->" is a symbolic link, a name
	// with a slash lies in a folder.
	Files map[string]string

	MaxConfNum int    // of containerd
	Default    string // of CRI-O

	Dockershim, Containerd, CRIO string
	// Reason is part of the explanation why dockershim does not take a file:
	// "FILE: TEXT".
	Reason string
}

const (
	ours   = `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`
	bridge = `{"cniVersion":"0.4.0","name":"br","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	single = `{"cniVersion":"0.4.0","name":"one","type":"bridge"}`
	noType = `{"cniVersion":"0.4.0","name":"one"}`
	multus = `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","capabilities":{"portMappings":true},
  "kubeconfig":"/etc/cni/net.d/multus.d/multus.kubeconfig",
  "delegates":[{"name":"kube-ovn","cniVersion":"0.3.1","plugins":[{"type":"kube-ovn"},{"type":"portmap","capabilities":{"portMappings":true}}]}]}`
	kubeOVN = `{"name":"kube-ovn","cniVersion":"0.3.1","plugins":[{"type":"kube-ovn","server_socket":"/run/openvswitch/kube-ovn-daemon.sock"},{"type":"portmap","capabilities":{"portMappings":true}}]}`
)

// same is a folder from which all runtimes take the same.
func same(name, winner string, files map[string]string) Folder {
	return Folder{Name: name, Files: files, MaxConfNum: 1, Dockershim: winner, Containerd: winner, CRIO: winner}
}

// apart is a folder from which containerd takes something else.
func apart(name, containerd, others, reason string, files map[string]string) Folder {
	return Folder{Name: name, Files: files, MaxConfNum: 1, Dockershim: others, Containerd: containerd, CRIO: others, Reason: reason}
}

// All are the folders.
func All() []Folder {
	ourFile := "10-fairlead.conflist"
	then := func(name, text string) map[string]string { return map[string]string{name: text, ourFile: ours} }
	all := []Folder{
		same("empty", "", nil),
		same("ours", ourFile, then(ourFile, ours)),
		same("by the bytes of names", "05-br.conflist", map[string]string{"05-br.conflist": bridge, "10-fairlead.conflist": ours, "9-one.conf": single}),
		same("capitals before small letters", "Z-br.conflist", map[string]string{"Z-br.conflist": bridge, "a-fairlead.conflist": ours}),
		same("a single plugin", "10-one.conf", map[string]string{"10-one.conf": single}),
		same("json", "00-one.json", then("00-one.json", single)),
		same("other endings", ourFile, then("00-br.conflist.bak", bridge)),
		same("an ending in capitals", ourFile, then("00-br.CONFLIST", bridge)),
		same("the seed of Multus", "00-multus.conf", map[string]string{"00-multus.conf": multus, "01-kube-ovn.conflist": kubeOVN, "multus.d/multus.kubeconfig": "x"}),
		same("the seed of Kube-OVN", "01-kube-ovn.conflist", map[string]string{"01-kube-ovn.conflist": kubeOVN}),
		same("only in a folder", "", map[string]string{"old.d/10-br.conflist": bridge}),
		same("a link", "00-br.conflist", map[string]string{"00-br.conflist": "->br.text", "br.text": bridge, ourFile: ours}),
		same("a list of a .json is no list", "", map[string]string{"00-x.json": ours}),
		same("plugins in the network's folder", "00-net.conflist", map[string]string{
			"00-net.conflist": `{"cniVersion":"0.4.0","name":"net"}`, "net/10-bridge.conf": single, "net/20-portmap.conf": `{"type":"portmap"}`, ourFile: ours,
		}),
		same("versions, of which the newest counts", "00-x.conflist", then("00-x.conflist", `{"cniVersions":["0.4.0","0.3.1"],"name":"x","plugins":[{"type":"bridge"}]}`)),
		same("no version is the first", "00-x.conf", then("00-x.conf", `{"name":"x","type":"ancient"}`)),
		same("a byte order mark", "", map[string]string{"00-x.conf": "\ufeff" + single}),

		apart("broken JSON first", "", ourFile, "00-x.conf: line 3: not JSON", then("00-x.conf", "{\n\"name\":\"x\",\n\"type\":bridge}")),
		apart("an empty file", "", ourFile, "00-x.conflist: the file is empty", then("00-x.conflist", "")),
		apart("a list in a .conf", "", ourFile, "00-x.conf: no `type`", then("00-x.conf", bridge)),
		apart("no type", "", ourFile, "00-x.conf: no `type`", then("00-x.conf", noType)),
		apart("no plugins", "", ourFile, "00-x.conflist: ", then("00-x.conflist", `{"cniVersion":"0.4.0","name":"x","plugins":[]}`)),
		apart("neither plugins nor a folder of them", "", ourFile, "00-x.conflist: no plugin configs found", then("00-x.conflist", `{"cniVersion":"0.4.0","name":"x"}`)),
		apart("a plugin without type", "", ourFile, "00-x.conflist: ", then("00-x.conflist", `{"cniVersion":"0.4.0","name":"x","plugins":[{"mtu":1400}]}`)),
		apart("a list without name", "", ourFile, "00-x.conflist: ", then("00-x.conflist", `{"cniVersion":"0.4.0","plugins":[{"type":"bridge"}]}`)),
		apart("a value of a wrong type", "", ourFile, "00-x.conf: line 2: ", then("00-x.conf", "{\"name\":\"x\",\n\"type\":5}")),
		apart("a link to nothing", "", ourFile, "00-x.conf: stat ", then("00-x.conf", "->gone")),
		apart("a link to a folder", "", ourFile, "00-x.conf: ", map[string]string{"00-x.conf": "->d", "d/a": "", ourFile: ours}),
		apart("no program", "00-x.conf", ourFile, "00-x.conf: gone is not in ", then("00-x.conf", `{"cniVersion":"0.4.0","name":"x","type":"gone"}`)),
		apart("one of two programs", "00-x.conflist", ourFile, "00-x.conflist: gone is not in ", then("00-x.conflist", `{"cniVersion":"0.4.0","name":"x","plugins":[{"type":"bridge"},{"type":"gone"}]}`)),
		apart("a program with a path", "00-x.conf", ourFile, `00-x.conf: "../bridge" is not a plugin type`, then("00-x.conf", `{"cniVersion":"0.4.0","name":"x","type":"../bridge"}`)),
		apart("a version that the program does not speak", "00-x.conf", ourFile, "00-x.conf: bridge does not speak cniVersion 1.1.0", then("00-x.conf", `{"cniVersion":"1.1.0","name":"x","type":"bridge"}`)),
		apart("a version that there is not", "00-x.conf", ourFile, "00-x.conf: fairlead does not speak cniVersion 9.0.0", then("00-x.conf", `{"cniVersion":"9.0.0","name":"x","type":"fairlead"}`)),
		apart("a program that is older than its version", "00-x.conf", ourFile, "00-x.conf: ancient does not speak cniVersion 0.2.0", then("00-x.conf", `{"cniVersion":"0.2.0","name":"x","type":"ancient"}`)),
		apart("a program that is no plugin", "00-x.conf", ourFile, "does not answer VERSION as a CNI plugin does", then("00-x.conf", `{"cniVersion":"0.4.0","name":"x","type":"silent"}`)),
		apart("a program that fails", "00-x.conf", ourFile, "does not answer VERSION: ", then("00-x.conf", `{"cniVersion":"0.4.0","name":"x","type":"failing"}`)),
		apart("a program that cannot be executed", "00-x.conf", ourFile, "is not executable", then("00-x.conf", `{"cniVersion":"0.4.0","name":"x","type":"text"}`)),
		apart("nothing usable", "", "", "", map[string]string{"00-x.conf": "{", "01-y.conf": noType}),
	}
	return append(all, special()...)
}

// special are folders where the runtimes' settings count.
func special() []Folder {
	two := map[string]string{"00-br.conflist": bridge, "10-fairlead.conflist": ours}
	broken := map[string]string{"00-br.conflist": bridge, "10-x.conf": "{", "20-fairlead.conflist": ours}
	first := same("a broken file behind", "00-br.conflist", broken)
	all := first
	all.Name, all.MaxConfNum, all.Containerd = "a broken file behind, and containerd reads all", 0, ""
	several := same("containerd reads all", "00-br.conflist", two)
	several.MaxConfNum = 0
	limited := same("containerd reads two", "00-br.conflist", map[string]string{"00-br.conflist": bridge, "10-one.conf": single, "20-x.conf": "{"})
	limited.MaxConfNum = 2
	named := same("CRI-O has a default", "00-br.conflist", two)
	named.Default, named.CRIO = "fairlead", "10-fairlead.conflist"
	nowhere := same("CRI-O has a default that is not there", "00-br.conflist", two)
	nowhere.Default, nowhere.CRIO = "other", ""
	unusable := same("CRI-O has a default that is not usable", "10-fairlead.conflist", map[string]string{
		"00-x.conf": `{"cniVersion":"0.4.0","name":"x","type":"gone"}`, "10-fairlead.conflist": ours,
	})
	unusable.Default, unusable.CRIO, unusable.Containerd = "x", "", "00-x.conf"
	twice := same("one name twice", "00-a.conf", map[string]string{"00-a.conf": single, "10-b.conf": strings.Replace(single, "bridge", "fairlead", 1)})
	nameless := same("no name", "00-x.conf", map[string]string{"00-x.conf": `{"cniVersion":"0.4.0","type":"bridge"}`, "10-fairlead.conflist": ours})
	hidden := same("hidden", ".00-br.conflist", map[string]string{".00-br.conflist": bridge, "10-fairlead.conflist": ours})
	return []Folder{first, all, several, limited, named, nowhere, unusable, twice, nameless, hidden}
}

// Make puts the folder on disk.
func (f Folder) Make(t *testing.T) explain.Settings {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "net.d")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range f.Files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if to, link := strings.CutPrefix(text, "->"); link {
			require.NoError(t, os.Symlink(to, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return explain.Settings{Dir: dir, MaxConfNum: f.MaxConfNum, Default: f.Default}
}

// Plugins makes a folder with the programs that the configurations name.
func Plugins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	all := `"0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"`
	answer := func(versions string) string {
		return `echo '{"cniVersion":"1.0.0","supportedVersions":[` + versions + `]}'`
	}
	for name, script := range map[string]string{
		"fairlead": answer(all), "multus": answer(all), "kube-ovn": answer(all), "portmap": answer(all),
		"bridge":  answer(`"0.3.1","0.4.0","1.0.0"`),
		"ancient": `echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1`,
		"silent":  "echo hello", "failing": "echo no >&2; exit 1",
	} {
		text := "#!/bin/sh\n[ \"$CNI_COMMAND\" = VERSION ] || exit 1\n" + script + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte("text"), 0o644))
	return dir
}
