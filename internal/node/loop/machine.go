package loop

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/carried"
	"github.com/fairlead/fairlead/internal/node/source"
)

// machine is what decides which fields of pods are carried out.
func (o *Config) machine() carried.Machine {
	enforced, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return carried.Machine{AppArmor: err == nil && strings.HasPrefix(string(enforced), "Y"), PodCgroups: o.CgroupRoot != ""}
}

// hostIP is the node's address as its pods are told: the one that it was given, else
// the one by which others would be reached, else any of its own. Nothing is sent.
func (o *Config) hostIP() string {
	if ip := cmp.Or(o.IP, towards("https://192.0.2.1"), towards("https://[2001:db8::1]")); ip != "" {
		return ip
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		addrs = nil // then it has none that could be told
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	return "127.0.0.1"
}

// credentials are the files in which a node keeps what it shows registries: its own,
// and Docker's.
func (o *Config) credentials() []string {
	out := []string{filepath.Join(o.RootDir, "config.json")}
	if home, err := os.UserHomeDir(); err == nil {
		out = append(out, filepath.Join(home, ".docker", "config.json"))
	}
	return out
}

// labels are those that the node gives itself; with a server, what the Node object
// has counts, and nothing is known before the server has answered.
func (o *Config) labels(server *apiServer) func() (map[string]string, bool) {
	own := map[string]string{v1.LabelHostname: o.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH}
	if server == nil {
		return func() (map[string]string, bool) { return own, true }
	}
	return server.reports.Labels
}

// warnings say what sources do not understand of a pod; both may be nil.
func warnings(files *source.File, url *source.URL) func(types.UID) []string {
	return func(uid types.UID) []string {
		var out []string
		if files != nil {
			out = append(out, files.Warnings(uid)...)
		}
		if url != nil {
			out = append(out, url.Warnings(uid)...)
		}
		return out
	}
}

// url is the source of a URL; nil without one.
func (o *Config) url(log *slog.Logger) *source.URL {
	if o.URL == "" {
		return nil
	}
	header, _ := o.header() // complete has read it
	return source.NewURL(source.URLConfig{Static: source.Static{Node: o.Name, Shared: o.Shared}, URL: o.URL, Header: header, Log: log})
}
