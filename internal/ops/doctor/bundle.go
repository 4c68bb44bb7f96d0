package doctor

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs"
)

const (
	maxLog       = 1 << 20 // bytes of the log's end
	maxDescribed = 200     // pods with their timelines
)

// BundleConfig says what goes into a support bundle.
type BundleConfig struct {
	Config
	// Raw gets a path of the agent's API as it stands.
	Raw     func(ctx context.Context, path string) ([]byte, error)
	Version string
	Now     time.Time
	// Secrets are values that must not appear, e.g. of the environment; what
	// the configurations and objects call secret is found without them.
	Secrets []string
}

// part is one file of the bundle.
type part struct {
	name string
	read func(context.Context) ([]byte, error)
	long bool // it bounds itself: what it consists of has a time of its own each
}

const bundleReadme = `Fairlead support bundle

What the node agent and this machine's network look like: the agent's views,
its metrics and log, the findings of "fairlead doctor", our bridge, links,
routes and our packet filter tables. Left out: the content of configurations,
annotations, environments, kubeconfigs. Values that look like secrets are
replaced by [redacted]. Names and addresses of pods are in it: look through it
before you give it away.
`

// Bundle writes a gzipped tar archive. A part that cannot be had is a line in
// errors.txt; Bundle fails only when w does, or when ctx ends.
func Bundle(ctx context.Context, cfg BundleConfig, w io.Writer) error {
	b := &bundle{cfg: cfg, hide: newRedactor(append(secretsBelow(cfg.ConfDir, cfg.Objects), cfg.Secrets...))}
	zip := gzip.NewWriter(w)
	b.tar = tar.NewWriter(zip)
	for _, p := range append(b.parts(), b.described(ctx)...) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("collect %s: %w", p.name, err)
		}
		if err := b.add(ctx, p); err != nil {
			return fmt.Errorf("write %s: %w", p.name, err)
		}
	}
	if err := b.file("errors.txt", []byte(strings.Join(b.failed, ""))); err != nil {
		return fmt.Errorf("write errors.txt: %w", err)
	}
	if err := b.tar.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return zip.Close()
}

// bundle is one archive being written.
type bundle struct {
	cfg    BundleConfig
	hide   redactor
	tar    *tar.Writer
	failed []string
}

func (b *bundle) parts() []part {
	parts := []part{
		{name: "README.txt", read: text0(bundleReadme)},
		{name: "versions.txt", read: b.versionsFile},
		{name: "doctor.txt", read: b.doctorFile, long: true},
		{name: "ovs.txt", read: b.ovsFile},
		{name: "links.txt", read: b.here(linksFile)},
		{name: "routes.txt", read: b.here(routesFile)},
		{name: "nft.txt", read: b.here(b.nftFile)},
		{name: "log.txt", read: b.logFile},
	}
	for name, path := range map[string]string{
		"status.json": agent.PathStatus, "pods.json": agent.PathPods, "nets.json": agent.PathNets,
		"subnets.json": agent.PathSubnets, "ips.json": agent.PathIPs, "metrics.txt": agent.PathMetrics,
	} {
		parts = append(parts, b.view(name, path))
	}
	slices.SortFunc(parts, func(x, y part) int { return cmp.Compare(x.name, y.name) })
	return parts
}

func (b *bundle) view(name, path string) part {
	return part{name: name, read: func(ctx context.Context) ([]byte, error) {
		raw, err := b.cfg.Raw(ctx, path)
		if err != nil || !strings.HasSuffix(name, ".json") {
			return raw, err
		}
		var out bytes.Buffer
		err = json.Indent(&out, raw, "", "  ")
		return out.Bytes(), err
	}}
}

// described are the pods in full, with their timelines.
func (b *bundle) described(ctx context.Context) (parts []part) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.patience())
	defer cancel()
	raw, err := b.cfg.Raw(ctx, agent.PathPods)
	var list agent.PodList
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return nil // the part pods.json says why
	}
	for _, p := range list.Items[:min(len(list.Items), maxDescribed)] {
		name := url.PathEscape(p.Namespace) + "_" + url.PathEscape(p.Name) + ".json"
		parts = append(parts, b.view("pods/"+name, agent.PodPath(p.Namespace, p.Name)))
	}
	return parts
}

// add collects one part. What fails to be collected is no failure of the bundle; what
// there is of it is in the file.
func (b *bundle) add(ctx context.Context, p part) error {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !p.long {
		bounded, cancel = context.WithTimeout(ctx, b.cfg.patience())
	}
	defer cancel()
	content, err := p.read(bounded)
	if err != nil {
		b.failed = append(b.failed, fmt.Sprintf("%s: %v\n", p.name, err))
		if len(content) == 0 {
			return nil
		}
	}
	return b.file(p.name, content)
}

// file writes a file after everything secret was taken out.
func (b *bundle) file(name string, content []byte) error {
	content = b.hide.clean(content)
	h := &tar.Header{Name: "fairlead/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.cfg.Now}
	if err := b.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := b.tar.Write(content)
	return err
}

// here marks what is read in a network namespace that is not the agent's.
func (b *bundle) here(read func(context.Context) ([]byte, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		content, err := read(ctx)
		if again := Elsewhere(ctx, b.cfg.Config, "support-bundle"); again != "" {
			content = append([]byte("# not the agent's network namespace, which has: "+again+"\n"), content...)
		}
		return content, err
	}
}

func text0(s string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(s), nil }
}

func (b *bundle) versionsFile(ctx context.Context) ([]byte, error) {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "fairlead: %s\n", b.cfg.Version)
	for _, argv := range [][]string{{"uname", "-srvm"}, {"nft", "--version"}, {"ovs-vsctl", "--version"}, {"cat", "/etc/os-release"}} {
		text, err := b.cfg.Run(ctx, Command{Argv: argv})
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(out, "\n$ %s\n%s\n", strings.Join(argv, " "), bytes.TrimSpace(text))
	}
	return out.Bytes(), nil
}

func (b *bundle) doctorFile(ctx context.Context) ([]byte, error) {
	r, err := Run(ctx, b.cfg.Config)
	out := &bytes.Buffer{}
	err = errors.Join(err, r.Text(out))
	return out.Bytes(), err
}

// knownIDs are the external_ids that tell an operator something; others may be
// anybody's.
var knownIDs = []string{
	ovs.KeyVendor, ovs.KeyIfaceID, ovs.KeyContainer, ovs.KeyGateway, "pod_namespace", "pod_name", "pod_netns", "ip",
}

// ovsFile writes our bridge in the manner of `ovs-vsctl show`.
func (b *bundle) ovsFile(ctx context.Context) ([]byte, error) {
	facts, err := readOVS(ctx, b.cfg.OVSDB, b.cfg.Bridge)
	if err != nil {
		return nil, err
	}
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "Open vSwitch %s, datapaths %s\n", orUnknown(facts.version), strings.Join(facts.datapaths, ", "))
	if facts.bridge == nil {
		fmt.Fprintf(out, "no bridge %s\n", b.cfg.Bridge)
		return out.Bytes(), nil
	}
	fmt.Fprintf(out, "Bridge %s datapath_type=%s fail_mode=%s\n", facts.bridge.name, facts.bridge.datapath, facts.bridge.failMode)
	for _, p := range facts.bridge.ports {
		fmt.Fprintf(out, "    Port %s tag=%d type=%s ofport=%d\n", p.name, p.tag, p.kind, p.ofport)
		if p.err != "" {
			fmt.Fprintf(out, "        error: %s\n", p.err)
		}
		for _, id := range knownIDs {
			if v := p.ids[id]; v != "" {
				fmt.Fprintf(out, "        %s=%s\n", id, v)
			}
		}
	}
	return out.Bytes(), nil
}

func linksFile(context.Context) ([]byte, error) {
	conn, err := rtnl.Open(nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	links, err := conn.Links()
	out := &bytes.Buffer{}
	for _, l := range links {
		fmt.Fprintf(out, "%d: %s kind=%s mtu=%d up=%t mac=%s group=%#x master=%d peer=%d\n",
			l.Index, l.Name, l.Kind, l.MTU, l.Up, l.MAC, l.Group, l.MasterIndex, l.PeerIndex)
	}
	return out.Bytes(), err
}

func routesFile(context.Context) ([]byte, error) {
	conn, err := rtnl.Open(nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	routes, err := conn.Routes(0)
	out := &bytes.Buffer{}
	for _, r := range routes {
		fmt.Fprintln(out, routeText(r))
	}
	return out.Bytes(), err
}

// routeText is a route as iproute2 writes it: what is not there is left out.
func routeText(r rtnl.Route) string {
	text := r.Dst.String()
	if r.GW.IsValid() {
		text += " via " + r.GW.String()
	}
	if r.Src.IsValid() {
		text += " src " + r.Src.String()
	}
	return text + fmt.Sprintf(" dev-index %d proto %d metric %d", r.Index, r.Protocol, r.Priority)
}

// nftFile writes our own tables only: the others' rules are not ours to show.
func (b *bundle) nftFile(ctx context.Context) ([]byte, error) {
	tables, err := b.cfg.Run(ctx, Command{Argv: []string{"nft", "list", "tables"}})
	if err != nil {
		return nil, err
	}
	out := &bytes.Buffer{}
	for line := range strings.Lines(string(tables)) {
		f := strings.Fields(line) // table <family> <name>
		if len(f) != 3 || !strings.HasPrefix(f[2], "fairlead") {
			continue
		}
		rules, err := b.cfg.Run(ctx, Command{Argv: []string{"nft", "-s", "list", "table", f[1], f[2]}})
		if err != nil {
			return nil, err
		}
		out.Write(rules)
	}
	return out.Bytes(), nil
}

// logFile is the end of the agent's log, where systemd keeps it. With -q
// journalctl prints nothing, instead of a line that says so, when there is none.
func (b *bundle) logFile(ctx context.Context) ([]byte, error) {
	log, err := b.cfg.Run(ctx, Command{Argv: []string{"journalctl", "-q", "-u", "fairlead", "-o", "cat", "-n", "5000", "--no-pager"}})
	if err == nil && len(bytes.TrimSpace(log)) == 0 {
		err = errors.New("no entries")
	}
	if err != nil {
		return nil, fmt.Errorf("the agent's log is not in systemd's journal of unit fairlead; add what the agent wrote to standard error by hand: %w", err)
	}
	if len(log) > maxLog {
		_, log, _ = bytes.Cut(log[len(log)-maxLog:], []byte("\n"))
	}
	return cleanLog(log), nil
}
