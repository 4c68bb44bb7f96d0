package migrate

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/network/resolve/confdir"
)

// Defaults of Multus (v4.3.0, pkg/types and the thick plugin's socketDir).
const (
	multusDir     = "/var/lib/cni/multus"
	multusConfDir = "/etc/cni/multus/net.d"
	multusRun     = "/run/multus"
)

func (m multusConf) dir() string {
	if m.conf.CNIDir != "" {
		return m.conf.CNIDir
	}
	return multusDir
}

// binDirs are searched for plugins.
func (m *Migration) binDirs(c multusConf) []string {
	if c.conf.BinDir != "" && c.conf.BinDir != m.BinDir {
		return []string{c.conf.BinDir, m.BinDir}
	}
	return []string{m.BinDir}
}

// missing are the types without a binary; Multus' own do nothing, and ours are
// the agent's.
func (m *Migration) missing(c multusConf, types []string) (out []string) {
	for _, t := range types {
		there := func(dir string) bool { return exists(filepath.Join(dir, t)) }
		if !core.OwnType(t) && t != "passthru" && !slices.ContainsFunc(m.binDirs(c), there) {
			out = append(out, t)
		}
	}
	return out
}

// pluginTypes are those of a chain and of its IPAM.
func pluginTypes(chain core.Chain) (out []string) {
	for _, p := range chain.Plugins {
		out = append(out, confTypes(p.Raw)...)
	}
	return out
}

func confTypes(raw json.RawMessage) []string {
	var c struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	_ = json.Unmarshal(raw, &c) // was parsed before
	return slices.DeleteFunc([]string{c.Type, c.IPAM.Type}, func(t string) bool { return t == "" })
}

// networks are those that every pod gets, and whether their configuration is
// there: NADs are the API server's to know.
func (m *Migration) networks(c multusConf) (out []Network, broken []string) {
	role := "default"
	for _, chain := range c.conf.Delegates {
		types := pluginTypes(chain)
		out = append(out, Network{Role: role, Name: chain.Name, Plugins: types, Missing: m.missing(c, types)})
		role = "further"
	}
	names := c.conf.DefaultNetworks
	if c.conf.ClusterNetwork != "" {
		names = append([]string{c.conf.ClusterNetwork}, names...)
	}
	dir := c.conf.ConfDir
	if dir == "" {
		dir = multusConfDir
	}
	files := confdir.Reader{Files: hostfile.Machine(), Dirs: []string{dir, m.ConfDir}, Log: slog.New(slog.DiscardHandler)}
	for _, name := range names {
		n := Network{Role: role, Name: name}
		role = "further"
		find := files.ByName
		if strings.HasPrefix(name, "/") {
			find = files.ByPath
		}
		switch chain, err := find(name); {
		case err == nil:
			n.Plugins = pluginTypes(chain)
			n.Missing = m.missing(c, n.Plugins)
		case strings.HasPrefix(name, "/"):
			n.Note = err.Error()
			broken = append(broken, err.Error())
		default:
			n.Note = "a NetworkAttachmentDefinition, or not there"
		}
		out = append(out, n)
	}
	return out, broken
}

// binaries are ours, those that are called Multus, and what Multus'
// configuration calls.
func (m *Migration) binaries(c multusConf) []Binary {
	var out []Binary
	for _, t := range append([]string{"fairlead"}, multusTypes...) {
		b := Binary{Type: t, Path: filepath.Join(m.BinDir, t), Then: thenReplace}
		b.Is = whose(b.Path)
		switch {
		case b.Is == whoseOurs && hostfile.SameFile(m.Plugin, b.Path):
			b.Then = thenKeep
		case b.Is == isAbsent && (t == "fairlead" || slices.Contains(c.file.types, t)):
			b.Then = thenInstall
		case b.Is == isAbsent:
			continue
		}
		out = append(out, b)
	}
	return out
}

// whose tells by what a Go program carries whose plugin a file is.
func whose(path string) string {
	if !exists(path) {
		return isAbsent
	}
	if hostfile.OwnPlugin(path) {
		return whoseOurs
	}
	if info, err := buildinfo.ReadFile(path); err == nil && strings.Contains(info.Path, "multus-cni") {
		return whoseMultus
	}
	return whoseOther
}

// kubeconfig judges the file that Multus' configuration names.
func kubeconfig(path string) *Kubeconfig {
	if path == "" {
		return nil
	}
	k := &Kubeconfig{Path: path}
	raw, err := os.ReadFile(path)
	var c struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				TokenFile string `json:"tokenFile"`
				Cert      string `json:"client-certificate"`
				Key       string `json:"client-key"`
			} `json:"user"`
		} `json:"users"`
	}
	if err == nil {
		err = yaml.Unmarshal(raw, &c)
	}
	if err == nil && (len(c.Clusters) == 0 || c.Clusters[0].Cluster.Server == "") {
		err = errors.New("it names no server")
	}
	if err == nil {
		files := []string{c.Clusters[0].Cluster.CA}
		for _, u := range c.Users {
			files = append(files, u.User.TokenFile, u.User.Cert, u.User.Key)
		}
		err = readable(filepath.Dir(path), files)
	}
	k.Usable = err == nil
	if err != nil {
		k.Why = err.Error()
	}
	return k
}

func readable(dir string, files []string) error {
	for _, file := range files {
		if file == "" {
			continue
		}
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if _, err := os.ReadFile(file); err != nil {
			return err
		}
	}
	return nil
}

// running looks for Multus' daemon: its socket, and processes by the name of
// their program.
func (m *Migration) running(c multusConf) Running {
	dir := text(c.keys["daemonSocketDir"])
	if dir == "" {
		dir = multusRun
	}
	r := Running{Socket: filepath.Join(dir, "multus.sock")}
	if conn, err := net.DialTimeout("unix", r.Socket, time.Second); err == nil {
		r.Listening = true
		_ = conn.Close()
	}
	procs, _ := filepath.Glob(filepath.Join(m.Proc, "[0-9]*", "cmdline")) // the pattern is good
	for _, p := range procs {
		line, _ := os.ReadFile(p) // it may have ended
		program, _, _ := strings.Cut(string(line), "\x00")
		if name := filepath.Base(program); (name == "multus-daemon" || name == "thin_entrypoint") && !m.elsewhere(filepath.Dir(p)) {
			r.Processes = append(r.Processes, filepath.Base(filepath.Dir(p))+" "+name)
		}
	}
	return r
}

// elsewhere tells that a process has another network namespace than the node:
// Multus' pods have the node's (hostNetwork), so that this one serves another
// node, in a container or a test on this machine.
func (m *Migration) elsewhere(process string) bool {
	own, err := os.Stat(filepath.Join(m.Proc, "self", "ns", "net"))
	its, ierr := os.Stat(filepath.Join(process, "ns", "net"))
	return err == nil && ierr == nil && !os.SameFile(own, its)
}

// records judges what Multus recorded.
func (m *Migration) records(c multusConf) []Record {
	folder := records.Folder{Dir: c.dir(), BinPath: m.binDirs(c)}
	out := []Record{}
	ids, err := folder.Containers()
	if err != nil {
		out = append(out, Record{Why: err.Error()})
	}
	for _, id := range ids {
		r := Record{Container: id}
		key := core.Key{Container: id, IfName: "eth0"}
		l, err := folder.Of(core.Request{Key: key})
		switch {
		case err != nil:
			r.Why = fmt.Sprintf("%v; its DEL goes by configuration and annotations", err)
		case l == nil:
			continue // removed meanwhile
		default:
			m.judge(&r, l, key, c)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int {
		return strings.Compare(a.Namespace+"/"+a.Pod+"/"+a.Container, b.Namespace+"/"+b.Pod+"/"+b.Container)
	})
	return out
}

func (m *Migration) judge(r *Record, l *records.Left, key core.Key, c multusConf) {
	pod := l.Pod()
	r.Namespace, r.Pod, r.Netns = pod.Namespace, pod.Name, l.Netns
	r.Attachments = m.attachments(l, c)
	err := l.Fit()
	ns, gone := netns.Identify(l.Netns)
	r.Alive = !errors.Is(gone, core.ErrNetnsGone) // or cannot be looked at
	if err == nil {
		err = gone
	}
	if err == nil {
		err = records.There(l.Record(key, c.file.name, ns))
	}
	switch {
	case err == nil:
		r.Adoptable = true
	case l.Netns != "" && !r.Alive:
		r.Why = "its namespace is gone; the runtime's DEL or GC removes it by Multus' files"
	default:
		r.Why = err.Error() + "; its DEL goes by Multus' files"
	}
}

func (m *Migration) attachments(l *records.Left, c multusConf) (out []Attachment) {
	for _, s := range slices.Concat(l.Own, l.Specs) {
		i := slices.IndexFunc(out, func(a Attachment) bool { return a.IfName == s.Key.IfName && a.Network == s.Network })
		if i < 0 {
			i, out = len(out), append(out, Attachment{IfName: s.Key.IfName, Network: s.Network})
		}
		types := []string{s.Exec.Type}
		if len(s.Exec.Conf) > 0 {
			types = confTypes(s.Exec.Conf)
		}
		out[i].Plugins = append(out[i].Plugins, types...)
		out[i].Missing = append(out[i].Missing, m.missing(c, types)...)
	}
	return out
}
