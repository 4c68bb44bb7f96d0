// Package fairlead_test holds the project's rules about its own source as
// ordinary tests: who may import whom, what is documented, how large things
// get. Each rule is a row of a table with its reason. It knows nothing of what
// the code does.
package fairlead_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/fairlead/fairlead"

// layer gives the packages below a folder their height. A package imports only
// what is lower; packages of one height do not import each other.
type layer struct {
	folder string
	height int
	why    string
}

// layers is DESIGN.md's layout. The longest folder that fits a package counts.
var layers = []layer{
	{"internal/core", 0, "the values that all others speak in"},
	{"internal/fail", 0, "crash points stand in every layer"},
	{"internal/hint", 0, "words of hints; knows no cluster"},
	{"internal/pause", 0, "when to try again; knows no purpose"},
	{"internal/turn", 0, "one at a time for each name; knows no container"},
	{"internal/kernel", 1, "verbs over netlink; no Fairlead words"},
	{"internal/ovs", 1, "verbs over OVSDB"},
	{"internal/ovn", 1, "verbs over OVN's databases"},
	{"internal/journal", 1, "stores what core defines"},
	{"internal/cniconf", 1, "CNI's formats; resolve parses NADs with it"},
	{"internal/confexplain", 2, "the runtimes' rules; must not know who asks"},
	{"internal/hostfile", 1, "files of the node; no formats"},
	{"internal/manifest", 1, "pure: values to Kubernetes objects"},
	{"internal/resolve", 2, "pure: inputs to Wants"},
	{"internal/ipam", 2, "pure but for its own memory"},
	{"internal/declare", 2, "pure: what objects say, whoever stores them"},
	{"internal/catalog", 2, "pure: objects to the operator's values"},
	{"internal/driver", 2, "the interface that drivers implement"},
	{"internal/gateway", 2, "the node's own ways out"},
	{"internal/plan", 3, "pure: Wants to Specs"},
	{"internal/local", 3, "a Source; must not know who asks"},
	{"internal/device", 3, "resolve's Devices; must not know who asks"},
	{"internal/cluster", 3, "a Source; the only user of client-go"},
	{"internal/cluster/share", 2, "what Nodes say to what one may give; the API is its Site"},
	{"internal/cluster/login", 2, "credentials; knows no object"},
	{"internal/driver/ovs", 3, "an implementation knows no other implementation"},
	{"internal/driver/exec", 3, "an implementation knows no other implementation"},
	{"internal/driver/defroute", 3, "an implementation knows no other implementation"},
	{"internal/driver/macvlan", 3, "an implementation knows no other implementation"},
	{"internal/driver/hostlocal", 3, "an implementation knows no other implementation"},
	{"internal/driver/static", 3, "an implementation knows no other implementation"},
	{"internal/driver/bridge", 3, "an implementation knows no other implementation"},
	{"internal/follow", 1, "names of pods and a clock"},
	{"internal/appear", 0, "waits for files; knows no purpose of theirs"},
	{"internal/filelock", 0, "one process at a time; knows no purpose"},
	{"internal/reap", 0, "children of the process; knows no purpose of theirs"},
	{"internal/filewatch", 1, "waits for changes of files; knows no content"},
	{"internal/source/folder", 1, "reads files of objects; must not know what they mean, nor who subscribes"},
	{"internal/recordfile", 2, "records as files; knows none of them"},
	{"internal/trace", 1, "times steps; core's Observer hears them"},
	{"internal/leftover", 3, "reads what another program wrote"},
	{"internal/guest", 1, "who may join an operation; the engine invites"},
	{"internal/record", 3, "pure: what follows from a record"},
	{"internal/upkeep", 3, "what stands outside of running pods; the engine calls it, and it knows no operation"},
	{"internal/engine", 4, "puts the layers below together; servers call it"},
	{"internal/outsider", 4, "pods of Multus; changes nothing, and the engine knows nothing of them"},
	{"internal/server", 5, "decodes, calls the engine, encodes"},
	{"internal/metrics", 5, "hears the engine as an Observer"},
	{"internal/client", 5, "the other end of the server's socket"},
	{"internal/autoconf", 5, "writes what makes a runtime call us"},
	{"internal/up", 5, "folders that are up; the command says of which parts"},
	{"internal/hostruntime", 3, "the machine's container runtimes; must not know who asks"},
	{"internal/nodeinstall", 5, "puts plugin and configuration in place; the command runs it"},
	{"internal/migrate", 5, "takes over from Multus; the command runs it"},
	{"internal/cri/fault", 1, "errors of the engine as CRI's; knows no call"},
	{"internal/cri/image", 2, "the engine's images; knows no pod"},
	{"internal/cri/stream", 2, "streams to containers and pods; others say which"},
	{"internal/cri/logs", 2, "containers' output; others say whose"},
	{"internal/cri/enginetest", 5, "an engine for tests"},
	{"internal/cri", 5, "puts CRI's services together"},
	{"internal/cri/label", 2, "names only"},
	{"internal/cri/checkpoint", 3, "keeps records; knows no engine"},
	{"internal/netplugin", 1, "what plugins must be able to do, and their order; knows no plugin"},
	{"internal/netplugin/store", 3, "records of plugins; knows none of them"},
	{"internal/netplugin/inpod", 2, "looks into a pod; knows no plugin"},
	{"internal/netplugin/brfilter", 2, "sysctls of bridges; knows no plugin"},
	{"internal/netplugin/shaper", 2, "rates of a port; knows no pod"},
	{"internal/netplugin/noop", 4, "a plugin knows no other plugin"},
	{"internal/netplugin/cni", 4, "a plugin knows no other plugin"},
	{"internal/netplugin/kubenet", 4, "a plugin knows no other plugin"},
	{"internal/cri/owngroup", 1, "the process's own cgroup; knows no pod"},
	{"internal/cri/spec", 3, "pure: CRI's words to Docker's"},
	{"internal/cri/sandbox", 4, "one group of RPCs knows no other"},
	{"internal/cri/container", 4, "one group of RPCs knows no other"},
	{"internal/cri/stats", 4, "one group of RPCs knows no other"},
	{"internal/node", 5, "puts the node's parts together; sources and runtime know no worker"},
	{"internal/node/podruntime", 4, "one pod as CRI calls; decides nothing about its life"},
	{"internal/node/pleg", 3, "compares lists; knows no CRI"},
	{"internal/node/volume", 3, "folders of pods; knows no runtime"},
	{"internal/node/carried", 2, "pure: which fields of a pod are carried out"},
	{"internal/node/cgroups", 2, "control groups with limits; knows no pod"},
	{"internal/node/demand", 2, "pure: what a pod asks of a node"},
	{"internal/node/downward", 2, "pure: what a pod says of itself"},
	{"internal/node/apiserver", 1, "a client and lists; must not know who asks"},
	{"internal/node/object", 2, "ConfigMaps and Secrets; must not know who asks"},
	{"internal/node/object/api", 3, "those of the API server; apart for its client-go"},
	{"internal/node/env", 3, "pure: variables of a container"},
	{"internal/node/pullsecret", 3, "credentials for images; asks no registry"},
	{"internal/node/security", 3, "pure: security contexts to CRI's"},
	{"internal/node/action", 2, "what hooks and probes do; knows no pod"},
	{"internal/node/probe", 4, "looks at containers; must not know what follows"},
	{"internal/node/client", 5, "the other end of the loop's socket"},
	{"internal/node/logs", 3, "files in CRI's form; knows no container"},
	{"internal/node/gc", 4, "the disk; knows the runtime and no pod"},
	{"internal/node/kubeletapi", 4, "who asks, and may they; knows no pod"},
	{"internal/node/report", 4, "what the API server is told; runs no pod"},
	{"internal/node/checkpoint", 3, "pods as files; knows no source"},
	{"internal/node/mux", 4, "merges lists of pods; knows no source"},
	{"internal/node/source", 4, "pods of files and URLs; must not know who listens"},
	{"internal/node/source/api", 4, "pods of the API server; apart for its client-go"},
	{"internal/doctor", 5, "looks at the machine and asks the agent; nobody asks it but the command"},
}

// peers are folders whose packages may import each other.
var peers = []string{"internal/kernel", "internal/resolve"}

// ban forbids an import everywhere but in the folders listed.
type ban struct {
	prefix string
	except []string
	why    string
}

var bans = []ban{
	{"flag", []string{"cmd"}, "only commands read flags"},
	{"github.com/spf13", []string{"cmd"}, "only commands read flags"},
	{"os/exec", []string{"cmd/fairlead", "internal/driver/exec"}, "the hot path starts no process; delegates have their driver"},
	{"k8s.io/client-go", []string{"internal/cluster", "internal/node/apiserver", "internal/node/source/api", "internal/node/object/api", "internal/node/report", "internal/node/kubeletapi", "internal/node/client"}, "the Kubernetes API has one user, and the node's pods others; tests ask it through internal/testbed/kube"},
	{"github.com/docker/docker", nil, "moby/moby/client is the maintained one"},
	{"github.com/sirupsen/logrus", nil, "log/slog is the one logger"},
	{"go.uber.org/zap", nil, "log/slog is the one logger"},
	{"k8s.io/klog", []string{"internal/cluster"}, "log/slog is the one logger; client-go's own lines are led there"},
	{"github.com/pkg/errors", nil, "the standard library wraps errors"},
	{"github.com/coreos/go-iptables", nil, "it starts processes; knftables batches"},
	{"io/ioutil", nil, "os and io have it all"},
	{"unsafe", []string{"cmd/fairlead-cni", "internal/kernel"}, "only system calls need it; go:linkname reaches below Go's public surface"},
	{"testing", nil, "a test library in the product"},
	{"github.com/stretchr/testify", nil, "a test library in the product"},
	{module + "/cmd", []string{"cmd/fairlead"}, "commands are not libraries"},
}

// only confines a folder's imports to the standard library and a list.
type only struct {
	folder string
	allow  []string
	why    string
}

var onlys = []only{
	{"internal/core", nil, "values must be readable anywhere"},
	{"internal/fail", nil, "it stands below everything"},
	{"api/cni", nil, "the plugin carries it"},
	{"cmd/fairlead-cni", []string{module + "/api/cni"}, "start-up time: package initialisation is what costs"},
	{"api", []string{module + "/api", "k8s.io/apimachinery"}, "types only; anybody may import them"},
}

// environment lists the folders that may read the environment.
var environment = []string{"cmd", "internal/fail"}

// readers are the functions of package os that read it.
var readers = []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}

// Upper bounds, exclusive (STYLE.md).
const (
	maxFile     = 600
	maxFunction = 60
	maxPackage  = 2500
)

// larger are packages that may have more lines. The engine's undoing, and what
// it does for Multus, are to become packages of their own when the tree is put
// in order; until then they stand where their callers are.
var larger = map[string]int{"internal/engine": 3100}

// source is one parsed file.
type source struct {
	name   string // slash-separated, relative to the root
	folder string
	test   bool
	lines  int
	text   []byte
	file   *ast.File
	fset   *token.FileSet
}

// tree maps a folder to its files.
type tree map[string][]source

// load parses every Go file below root that belongs to root's module.
func load(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(root, name, d)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		s, err := parse(root, name)
		t[s.folder] = append(t[s.folder], s)
		return err
	})
	return t, err
}

// skip leaves out hidden folders, test data and modules of their own.
func skip(root, name string, d fs.DirEntry) error {
	if name == root {
		return nil
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
		return filepath.SkipDir
	}
	return nil
}

func parse(root, name string) (source, error) {
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return source{}, err
	}
	s := source{name: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet()}
	s.folder = path.Dir(s.name)
	if s.text, err = os.ReadFile(name); err != nil {
		return source{}, err
	}
	s.file, err = parser.ParseFile(s.fset, name, s.text, parser.ParseComments)
	if err == nil {
		s.lines = s.fset.File(s.file.FileStart).LineCount()
	}
	return s, err
}

// imports lists the import paths of a file.
func (s source) imports() []string {
	var out []string
	for _, i := range s.file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// support tells that a folder holds test helpers: the testbed, the end-to-end
// tests, and packages named after what they help to test (httptest's way).
func support(folder string) bool {
	return strings.HasSuffix(folder, "test") || within(folder, "internal/testbed") || within(folder, "test")
}

// within tells that a path is the folder or lies below it.
func within(p, folder string) bool {
	return p == folder || strings.HasPrefix(p, folder+"/")
}

func withinAny(p string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(p, f) })
}

// layerOf finds the row of a folder.
func layerOf(folder string) (layer, bool) {
	best, found := layer{}, false
	for _, l := range layers {
		if within(folder, l.folder) && len(l.folder) >= len(best.folder) {
			best, found = l, true
		}
	}
	return best, found
}

// violations applies every rule to the tree.
func violations(t tree) []string {
	var out []string
	for folder, files := range t {
		out = append(out, checkDoc(folder, files)...)
		out = append(out, checkPackageSize(folder, files)...)
		for _, f := range files {
			out = append(out, checkFile(f)...)
		}
	}
	slices.Sort(out)
	return out
}

// checkFile applies the rules about one file; tests and their helpers may
// import what they like.
func checkFile(f source) []string {
	out := checkSizes(f)
	if f.test || support(f.folder) {
		return out
	}
	for _, p := range f.imports() {
		out = append(out, checkLayer(f, p)...)
		out = append(out, checkBans(f, p)...)
		out = append(out, checkOnly(f, p)...)
	}
	return append(out, checkEnvironment(f)...)
}

// checkLayer proves that an import points downwards.
func checkLayer(f source, imported string) []string {
	to, ours := strings.CutPrefix(imported, module+"/")
	if !ours || !within(f.folder, "internal") || !within(to, "internal") {
		return nil
	}
	mine, ok := layerOf(f.folder)
	if !ok {
		return []string{fmt.Sprintf("%s: %s has no row in the layers table", f.name, f.folder)}
	}
	theirs, ok := layerOf(to)
	switch {
	case !ok:
		return []string{fmt.Sprintf("%s: %s has no row in the layers table", f.name, to)}
	case theirs.height < mine.height, f.folder == to:
		return nil
	case slices.ContainsFunc(peers, func(p string) bool { return within(f.folder, p) && within(to, p) }):
		return nil
	}
	return []string{fmt.Sprintf("%s: %s (layer %d) imports %s (layer %d); %s: %s",
		f.name, f.folder, mine.height, to, theirs.height, mine.folder, mine.why)}
}

func checkBans(f source, imported string) []string {
	var out []string
	if to, ours := strings.CutPrefix(imported, module+"/"); ours && support(to) {
		out = append(out, fmt.Sprintf("%s: imports %s: test support, for tests only", f.name, imported))
	}
	for _, b := range bans {
		if within(imported, b.prefix) && !withinAny(f.folder, b.except) {
			out = append(out, fmt.Sprintf("%s: imports %s: %s", f.name, imported, b.why))
		}
	}
	return out
}

// checkOnly applies the first row that fits the folder.
func checkOnly(f source, imported string) []string {
	for _, o := range onlys {
		if !within(f.folder, o.folder) {
			continue
		}
		if standard(imported) || withinAny(imported, o.allow) {
			return nil
		}
		return []string{fmt.Sprintf("%s: imports %s, beyond what %s may: %s", f.name, imported, o.folder, o.why)}
	}
	return nil
}

// standard tells a path of the standard library: its first element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// checkEnvironment finds calls that read the environment outside the commands.
func checkEnvironment(f source) []string {
	if withinAny(f.folder, environment) {
		return nil
	}
	var out []string
	ast.Inspect(f.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "os" && slices.Contains(readers, sel.Sel.Name) {
			out = append(out, fmt.Sprintf("%s: os.%s: only commands read the environment", f.name, sel.Sel.Name))
		}
		return true
	})
	return out
}

// checkDoc wants one file of each package to say what the package is for.
func checkDoc(folder string, files []source) []string {
	product := slices.DeleteFunc(slices.Clone(files), func(f source) bool { return f.test })
	if len(product) == 0 {
		return nil
	}
	for _, f := range product {
		if f.file.Doc != nil && strings.TrimSpace(f.file.Doc.Text()) != "" {
			return nil
		}
	}
	return []string{folder + ": no package comment (what is it for, what must it not know)"}
}

func checkPackageSize(folder string, files []source) []string {
	total := 0
	for _, f := range files {
		if !f.test {
			total += f.lines
		}
	}
	most := max(maxPackage, larger[folder])
	if total < most {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines; a package stays under %d", folder, total, most)}
}

// checkSizes bounds files, and functions outside tests.
func checkSizes(f source) []string {
	var out []string
	if f.lines >= maxFile && !ast.IsGenerated(f.file) {
		out = append(out, fmt.Sprintf("%s: %d lines; a file stays under %d", f.name, f.lines, maxFile))
	}
	if f.test {
		return out
	}
	for name, n := range functions(f) {
		if n >= maxFunction {
			out = append(out, fmt.Sprintf("%s: %s has %d lines; a function stays under %d", f.name, name, n, maxFunction))
		}
	}
	return out
}

// functions measures each function of a file, in lines from `func` to its end.
func functions(f source) map[string]int {
	out := map[string]int{}
	for _, d := range f.file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			out[fmt.Sprintf("%s (line %d)", fn.Name.Name, f.fset.Position(fn.Pos()).Line)] =
				f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
		}
	}
	return out
}

func TestArchitecture(t *testing.T) {
	src, err := load(".")
	require.NoError(t, err)
	require.Contains(t, src, "internal/core", "the tree was not found")
	for _, v := range violations(src) {
		t.Error(v)
	}
}

// TestEveryLayerHasAReason keeps the tables honest.
func TestEveryLayerHasAReason(t *testing.T) {
	for _, l := range layers {
		require.NotEmpty(t, l.why, l.folder)
	}
	for _, b := range bans {
		require.NotEmpty(t, b.why, b.prefix)
	}
	for _, o := range onlys {
		require.NotEmpty(t, o.why, o.folder)
	}
}

// TestNoAssembly: what is fast only below Go's public surface stays slow, and
// every program builds wherever Go does.
func TestNoAssembly(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{range .SFiles}}{{$.ImportPath}}/{{.}} {{end}}", "./...").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, strings.Fields(string(out)))
}

// TestPluginStaysThin looks at all that the plugin links, also through others:
// net/http alone costs 1.2 ms of CPU at every start (performance.md).
func TestPluginStaysThin(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/fairlead-cni").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, dep := range strings.Fields(string(out)) {
		ours := within(dep, module+"/cmd/fairlead-cni") || dep == module+"/api/cni"
		require.Truef(t, ours || standard(dep), "the plugin links %s", dep)
		require.NotEqual(t, "net/http", dep, "the plugin links net/http")
		require.NotEqual(t, "os/exec", dep, "the plugin starts no process")
	}
}
