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

// layer gives the packages of a wing their height. A package imports what is
// lower and what is in its own wing; wings of one height do not know each
// other.
type layer struct {
	folder string
	height int
	why    string
}

// layers is DESIGN.md's layout: a row for each wing, and one for what stands
// apart from its wing. The longest folder that fits a package counts.
var layers = []layer{
	{"internal/core", 0, "the values that all others speak in"},
	{"internal/lib", 1, "small helpers; each knows no purpose but its own"},
	{"internal/kernel", 2, "verbs over netlink; no Fairlead words"},
	{"internal/ovs", 2, "verbs over OVSDB; its session is what OVN's client has too"},
	{"internal/journal", 2, "stores what core defines"},
	{"internal/network", 2, "pure: what a pod should get, from objects to Specs"},
	{"internal/install/manifest", 2, "pure: values to Kubernetes objects"},
	{"internal/ovn", 3, "verbs over OVN's databases, over ovs/session"},
	{"internal/source", 3, "what should be, whoever asks"},
	{"internal/driver", 3, "makes and proves what Specs say"},
	{"internal/gateway", 4, "the node's own ways out; host ports are a driver too"},
	{"internal/multus", 4, "what Multus left, and pods left to it"},
	{"internal/install", 4, "runtimes and clusters as they are installed"},
	{"internal/controller", 4, "objects to OVN and addresses; runs anywhere"},
	{"internal/agent", 5, "puts the layers below together"},
	{"internal/netplugin", 5, "network plugins of the runtime side"},
	{"internal/node", 5, "pods without kubelet, over any CRI runtime"},
	{"internal/up", 6, "agent, node loop and runtime in one process"},
	{"internal/ops", 5, "the operator's end: looks and asks"},
	{"internal/cri", 6, "CRI over Docker, with the network plugins"},
}

// stranger is a group of packages that must not know each other although they
// are in one wing.
type stranger struct {
	folders []string
	why     string
}

var strangers = []stranger{
	{[]string{"internal/driver/ovs", "internal/driver/exec", "internal/driver/defroute", "internal/driver/builtin/bridge", "internal/driver/builtin/macvlan",
		"internal/driver/builtin/hostdevice", "internal/driver/builtin/hostlocal", "internal/driver/builtin/sriov", "internal/driver/builtin/static", "internal/driver/builtin/whereabouts"}, "an implementation knows no other implementation"},
	{[]string{"internal/netplugin/cni", "internal/netplugin/kubenet"}, "a plugin knows no other plugin"},
	{[]string{"internal/cri/sandbox", "internal/cri/container", "internal/cri/stats"}, "one group of RPCs knows no other"},
	{[]string{"internal/source/folder", "internal/source/cluster", "internal/source/device"}, "a source knows no other source"},
	{[]string{"internal/gateway/hostport", "internal/gateway/standalone", "internal/gateway/uplink"}, "one way out knows no other"},
	{[]string{"internal/node/mux", "internal/node/source", "internal/node/podruntime", "internal/node/probe", "internal/node/report"},
		"pod sources, runtime and reports meet in the pod workers"},
}

// ban forbids an import everywhere but in the folders listed.
type ban struct {
	prefix string
	except []string
	why    string
}

var bans = []ban{
	{"flag", []string{"cmd"}, "only commands read flags"},
	{"github.com/spf13", []string{"cmd"}, "only commands read flags"},
	{"os/exec", []string{"cmd/fairlead", "internal/kernel/nft", "internal/kernel/iptables", "internal/driver/exec", "internal/netplugin/cni", "internal/up", "internal/controller/central", "internal/ops/program"}, "the hot path starts no process; nft reads tables, iptables has no other interface that both its backends share, delegates have their driver, plugins of a runtime their starter, `up` starts itself and its unit, central OVN's programs, and an operator's command the machine's"},
	{"k8s.io/client-go", []string{"internal/source/cluster", "internal/node/apiserver", "internal/node/source/api", "internal/node/object/api", "internal/node/report", "internal/node/kubeletapi", "internal/node/client", "internal/controller/kube", "internal/lib/retry"}, "the Kubernetes API has one user, and the node's pods others; tests ask it through internal/testbed/kube"},
	{"k8s.io/client-go/util/workqueue", []string{"internal/lib/retry"}, "one queue of work, over this one, which asks no server: retry.Queue"},
	{"github.com/docker/docker", nil, "moby/moby/client is the maintained one"},
	{"github.com/sirupsen/logrus", nil, "log/slog is the one logger"},
	{"go.uber.org/zap", nil, "log/slog is the one logger"},
	{"k8s.io/klog", []string{"internal/source/cluster"}, "log/slog is the one logger; client-go's own lines are led there"},
	{"github.com/pkg/errors", nil, "the standard library wraps errors"},
	{"github.com/coreos/go-iptables", nil, "it starts processes; knftables batches"},
	{"github.com/fsnotify/fsnotify", []string{"internal/lib/filewatch"}, "one watcher of files"},
	{"io/ioutil", nil, "os and io have it all"},
	{"text/template", nil, "it calls methods by name, for which the linker keeps all methods of all types: a fifth of the program; datadog-agent/pkg/template calls none"},
	{"html/template", nil, "as text/template"},
	{"unsafe", []string{"cmd/fairlead-cni", "internal/kernel"}, "only system calls need it; go:linkname reaches below Go's public surface"},
	{"testing", nil, "a test library in the product"},
	{"github.com/stretchr/testify", nil, "a test library in the product"},
	{module + "/cmd", []string{"cmd/fairlead", "cmd/fairlead-controller"}, "commands are not libraries"},
}

// only confines a folder's imports to the standard library and a list.
type only struct {
	folder string
	allow  []string
	why    string
}

var onlys = []only{
	{"internal/core", nil, "values must be readable anywhere"},
	{"internal/lib/fail", nil, "it stands below everything"},
	{"internal/lib/retry", []string{"k8s.io/client-go/util/workqueue"}, "of client-go only the queue, which asks no server"},
	{"api/cni", nil, "the plugin carries it"},
	{"cmd/fairlead-cni", []string{module + "/api/cni"}, "start-up time: package initialisation is what costs"},
	{"api", []string{module + "/api", "k8s.io/apimachinery"}, "types only; anybody may import them"},
}

// avoid forbids a folder some of what is below it. What ends in a slash are the
// folders below that one.
type avoid struct {
	folder string
	what   []string
	why    string
}

var avoids = []avoid{
	{"cmd/fairlead-controller", []string{module + "/cmd/fairlead"}, "a program knows no other; what programs share is cmd/usage"},
	{"internal/agent", []string{module + "/internal/controller"}, "an agent takes what a controller says; who runs both wires them"},
	{"internal/controller", []string{module + "/internal/kernel", module + "/internal/driver", module + "/internal/gateway", module + "/internal/ovs"},
		"a controller runs anywhere; what a node has is its agent's"},
	{"internal/agent/engine", []string{module + "/internal/driver/", module + "/internal/gateway"},
		"it asks drivers for capabilities; which there are is wiring"},
	{"internal/agent/server", []string{module + "/internal/driver/", module + "/internal/gateway"}, "as the engine"},
	{"internal/agent/upkeep", []string{module + "/internal/driver/", module + "/internal/gateway"}, "as the engine"},
}

// environment lists the folders that may read the environment.
var environment = []string{"cmd", "internal/lib/fail"}

// readers are the functions of package os that read it.
var readers = []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}

// Upper bounds, exclusive (STYLE.md).
const (
	maxFile     = 600
	maxFunction = 60
	maxPackage  = 2500
	minPackage  = 80   // below it a package is a file of a neighbour, unless it is in `smaller`
	maxCommands = 3501 // all of cmd/fairlead and cmd/usage: cobra, flags and wiring
)

// larger are packages that may have more lines. ADD, hot plug, DEL, GC and the
// background worker of the engine undo by the same fifteen functions, on a record
// that they have in the container's turn. Undoing (400 lines) as a package would
// export all of these to its one caller, with the pauses and callbacks that they
// share, and would leave 2,600; what is done for Multus (200) calls them too, and
// could not go without it.
//
// The controller's reconcilers share one term of leading: book, queue, waiters and
// what objects were told last; a kind of its own would export that to the others. The
// testbed's cluster has the parts of one Kubernetes, kube-proxy too. What is asked,
// declared and found of a pod's networks meets in resolve's one value `network`, which a
// package for declarations would export with all that it may change. The agent's own
// package is the wiring of some thirty parts, each a package below it.
var larger = map[string]int{"internal/agent/engine": 3300, "internal/controller": 3900, "internal/testbed/kube": 2600, "internal/network/resolve": 3500, "internal/agent": 2700}

// smaller are packages of internal/ that stand alone though they are small.
var smaller = map[string]string{
	"internal/lib/fail":        "it stands below everything, and test builds alone have its other half",
	"internal/lib/hint":        "commands, agent, node and sources tell people the next step",
	"internal/lib/httpserve":   "agent, node loop and the CRI command serve by it, and know no common wing",
	"internal/lib/metric":      "agent, CRI command and controller have a registry each, and know no common wing",
	"internal/lib/parts":       "node loop and controller run their parts by it, and know no common wing",
	"internal/kernel/counters": "of devices and of virtual functions, of which rtnl and sriov know one each",
	"internal/cri/fault":       "below the groups of RPCs, of which none knows another",

	"internal/driver/builtin/whereabouts": "an implementation knows no other implementation",
}

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
// tests, and packages named after what they help to test (httptest's way), with
// those below.
func support(folder string) bool {
	named := func(part string) bool { return strings.HasSuffix(part, "test") }
	return slices.ContainsFunc(strings.Split(folder, "/"), named) || within(folder, "internal/testbed")
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
		out = append(out, checkAvoid(f, p)...)
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
	case theirs.folder == mine.folder:
		return checkStrangers(f, to)
	case theirs.height < mine.height:
		return nil
	}
	return []string{fmt.Sprintf("%s: %s (layer %d) imports %s (layer %d); %s: %s",
		f.name, f.folder, mine.height, to, theirs.height, mine.folder, mine.why)}
}

// checkStrangers proves that packages of one wing keep apart where they must.
func checkStrangers(f source, to string) []string {
	for _, s := range strangers {
		group := func(folder string) int {
			return slices.IndexFunc(s.folders, func(one string) bool { return within(folder, one) })
		}
		if mine, theirs := group(f.folder), group(to); mine >= 0 && theirs >= 0 && mine != theirs {
			return []string{fmt.Sprintf("%s: %s imports %s: %s", f.name, f.folder, to, s.why)}
		}
	}
	return nil
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

func checkAvoid(f source, imported string) []string {
	var out []string
	for _, a := range avoids {
		if within(f.folder, a.folder) && slices.ContainsFunc(a.what, func(w string) bool { return avoided(imported, w) }) {
			out = append(out, fmt.Sprintf("%s: imports %s, which %s must not: %s", f.name, imported, a.folder, a.why))
		}
	}
	return out
}

// avoided tells that an import is what a row of avoids names.
func avoided(imported, what string) bool {
	if strings.HasSuffix(what, "/") {
		return strings.HasPrefix(imported, what)
	}
	return within(imported, what)
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
	total := size(files)
	most := max(maxPackage, larger[folder])
	if total < most {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines; a package stays under %d", folder, total, most)}
}

// size is a package's, in lines without tests and what is generated.
func size(files []source) int {
	total := 0
	for _, f := range files {
		if !f.test && !ast.IsGenerated(f.file) {
			total += f.lines
		}
	}
	return total
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

// TestCommandsStayThin: what a program does is a wing's; its command parses flags
// and puts parts together.
func TestCommandsStayThin(t *testing.T) {
	src, err := load(".")
	require.NoError(t, err)
	total := 0
	for folder, files := range src {
		for _, f := range files {
			if withinAny(folder, []string{"cmd/fairlead", "cmd/usage"}) && !f.test {
				total += f.lines
			}
		}
	}
	require.NotZero(t, total)
	require.Less(t, total, maxCommands, "lines of cmd/fairlead and cmd/usage without tests")
}

// TestSmallPackagesHaveAReason: what is too small to be a room of its own is a
// file of its neighbour.
func TestSmallPackagesHaveAReason(t *testing.T) {
	src, err := load(".")
	require.NoError(t, err)
	for folder, files := range src {
		total, why := size(files), smaller[folder]
		small := 0 < total && total < minPackage && within(folder, "internal") && !support(folder)
		require.Equalf(t, small, why != "", "%s has %d lines; a row of `smaller` says why it stands alone: %q", folder, total, why)
	}
	for folder := range smaller {
		require.Contains(t, src, folder)
	}
}

// TestEveryLayerHasAReason keeps the tables honest.
func TestEveryLayerHasAReason(t *testing.T) {
	for _, l := range layers {
		require.NotEmpty(t, l.why, l.folder)
	}
	require.LessOrEqual(t, len(layers), 20, "a row for each wing, and few exceptions")
	for _, s := range strangers {
		require.NotEmpty(t, s.why, s.folders)
	}
	for _, b := range bans {
		require.NotEmpty(t, b.why, b.prefix)
	}
	for _, o := range onlys {
		require.NotEmpty(t, o.why, o.folder)
	}
	for _, a := range avoids {
		require.NotEmpty(t, a.why, a.folder)
	}
}

// TestNoAssembly: what is fast only below Go's public surface stays slow, and
// every program builds wherever Go does.
func TestNoAssembly(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{range .SFiles}}{{$.ImportPath}}/{{.}} {{end}}", "./...").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, strings.Fields(string(out)))
}

// controllerOnly are packages that cost the agent of each node memory as soon as
// they are linked into its program, used or not.
var controllerOnly = []string{
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/informers",
	"k8s.io/client-go/tools/leaderelection", module + "/internal/controller/kube", module + "/internal/controller/loop",
}

// TestAgentStaysThin looks at all that the node's program links, also through
// others: typed clients alone register all of Kubernetes' kinds at each start.
func TestAgentStaysThin(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/fairlead").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, dep := range strings.Fields(string(out)) {
		require.Falsef(t, withinAny(dep, controllerOnly), "fairlead links %s: 7 MB on each node come with a controller's libraries", dep)
	}
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
