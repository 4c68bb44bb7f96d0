package cri_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
)

// Prefixes of the images that the suite asks for.
const (
	staging = "gcr.io/k8s-staging-cri-tools/"
	e2e     = "registry.k8s.io/e2e-test-images/"
)

// images are the suite's, by their Dockerfile after FROM our busybox.
var images = []struct {
	dockerfile string
	names      []string
}{
	{"COPY server /bin/pgrep\nCOPY server /bin/ipcs\n" + // its ls must be a file of its own: a spec masks it
		"RUN rm /bin/ls && cp /bin/busybox /bin/ls", []string{e2e + "busybox:1.29-2"}},
	{"LABEL n=pause", []string{"registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"}},
	{"LABEL n=latest", []string{staging + "test-image-latest:latest"}},
	{"LABEL n=tag", []string{staging + "test-image-tag:test"}},
	{"LABEL n=all", []string{staging + "test-image-tag:all"}},
	{"LABEL n=1", []string{staging + "test-image-1:latest"}},
	{"LABEL n=2", []string{staging + "test-image-2:latest"}},
	{"LABEL n=3", []string{staging + "test-image-3:latest"}},
	{"LABEL n=tags", []string{staging + "test-image-tags:1", staging + "test-image-tags:2", staging + "test-image-tags:3"}},
	{"USER 1002", []string{staging + "test-image-user-uid"}},
	{"USER www-data", []string{staging + "test-image-user-username"}},
	{"USER 1003:users", []string{staging + "test-image-user-uid-group"}},
	{"USER www-data:www-data", []string{staging + "test-image-user-username-group"}},
	{"RUN echo default-user:x:1000:1000::/:/bin/sh >>/etc/passwd && echo group-defined-in-image:x:50000:default-user >>/etc/group\nUSER 1000",
		[]string{staging + "test-image-predefined-group"}},
	{"COPY server /bin/nnp\nRUN chmod 4755 /bin/nnp\nCMD [\"/bin/nnp\"]", []string{e2e + "nonewprivs:1.3"}},
	{"COPY server /srv/nginx\nCMD [\"/srv/nginx\", \"master process\", \"80\"]", []string{e2e + "nginx:1.14-2"}},
	{"COPY server /srv/httpd\nCMD [\"/srv/httpd\", \"80\"]", []string{e2e + "httpd:2.4.39-4"}},
	{"COPY server /srv/nginx\nCMD [\"/srv/nginx\", \"12003\"]", []string{staging + "hostnet-nginx-amd64"}},
}

// known are the specs that cannot pass here, each with its reason.
var known = map[string]string{
	"[k8s.io] Image Manager public image with digest should be pulled and removed [Conformance]": "the image with this digest is in its registry alone, which cannot be reached",
	"[k8s.io] Security Context bucket runtime should support MaskedPaths":                        "the spec masks /bin/ls, which the shell of Debian's busybox does not need for ls; TestMaskedPath",
}

// racy are the specs that fail by chance, each with why. They are tried again.
var racy = map[string]string{
	"[k8s.io] Container OOM runtime should output OOMKilled reason should terminate with exitCode 137 and reason OOMKilled": "containerd 1.6, " +
		"by which Docker hears of it, drops the news of an OOM kill when the container's control group is gone before it has read them",
}

// skips are the specs that do not run here, by the reason why.
func skips() map[string]string {
	out := map[string]string{}
	for _, name := range []string{
		"[k8s.io] PodSandbox benchmark about operations on PodSandbox benchmark about lifecycle of PodSandbox",
		"[k8s.io] Container benchmark about operations on Container benchmark about basic operations on Container",
		"[k8s.io] Image benchmark about operations on Image benchmark about basic operations on Image",
		"[k8s.io] Image benchmark about operations on Image benchmark about listing Image",
		"[k8s.io] PodSandbox benchmark about start a container from scratch benchmark about start a container from scratch",
	} {
		out[name] = "a benchmark, which runs with -benchmark only"
	}
	for _, name := range []string{
		"[k8s.io] Security Context UserNamespaces when Host idmap mount support is needed runtime should support NamespaceMode_POD",
		"[k8s.io] Security Context UserNamespaces when Host idmap mount support is not needed runtime should support NamespaceMode_NODE",
		"[k8s.io] Security Context UserNamespaces when Host idmap mount support is not needed runtime should fail if more than one mapping provided",
		"[k8s.io] Security Context UserNamespaces when Host idmap mount support is not needed runtime should fail if container ID 0 is not mapped",
		"[k8s.io] Security Context UserNamespaces when Host idmap mount support is not needed runtime should fail with NamespaceMode_CONTAINER",
		"[k8s.io] Security Context UserNamespaces when Host idmap mount support is not needed runtime should fail with NamespaceMode_TARGET",
	} {
		out[name] = "Docker Engine remaps users for all of its containers or for none, not for a pod; a pod that asks for it is refused"
	}
	if on, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled"); strings.HasPrefix(string(on), "Y") { // not there: not in this kernel
		return out
	}
	for _, name := range []string{
		"[k8s.io] AppArmor runtime should support deprecated apparmor_profile field should fail with an unloaded apparmor_profile",
		"[k8s.io] AppArmor runtime should support deprecated apparmor_profile field should enforce a apparmor_profile blocking writes",
		"[k8s.io] AppArmor runtime should support deprecated apparmor_profile field should enforce a permissive deprecated profile",
		"[k8s.io] AppArmor runtime should support apparmor field should fail with an unloaded apparmor_profile",
		"[k8s.io] AppArmor runtime should support apparmor field should enforce a apparmor_profile blocking writes",
		"[k8s.io] AppArmor runtime should support apparmor field should enforce a permissive deprecated profile",
		"[k8s.io] AppArmor runtime should prefer new apparmor field should fail with an unloaded apparmor_profile",
		"[k8s.io] AppArmor runtime should prefer new apparmor field should enforce a apparmor_profile blocking writes",
		"[k8s.io] AppArmor runtime should prefer new apparmor field should work with apparmor profile",
	} {
		out[name] = "this kernel has no AppArmor"
	}
	return out
}

// tries of a racy spec, the first in the whole run included.
const tries = 4

// spec is one result of the suite.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.TrimSpace(strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " "))
}

// TestConformance runs the conformance suite of CRI.
func TestConformance(t *testing.T) {
	root, err := testbed.Repository()
	require.NoError(t, err)
	tools := filepath.Join(root, ".cache/cri")
	require.FileExists(t, filepath.Join(tools, "critest"), "run: make critest")
	n := testbed.Bare(t)
	b := &bed{t: t, n: n}
	b.conf("10-test.conflist", bridgeConf)
	b.e = docker.Start(t, n, docker.Registries(t, n, "gcr.io", "k8s.gcr.io", "registry.k8s.io")...)
	b.pushImages(filepath.Join(tools, "server"))
	b.CRI = b.e.StartCRI()

	focus := os.Getenv("FAIRLEAD_CRITEST_FOCUS")
	unlucky := judge(t, b.critest(tools, focus), focus == "")
	for try := 1; len(unlucky) > 0; try++ {
		require.Less(t, try, tries, "%v", unlucky)
		unlucky = judge(t, b.critest(tools, regexp.QuoteMeta(unlucky[0])), false)
	}
}

// critest runs the suite, or the specs that match focus, and gives its report.
func (b *bed) critest(tools, focus string) (report string) {
	t, n := b.t, b.n
	t.Helper()
	report = filepath.Join(n.Dir, "critest.json")
	args := []string{filepath.Join(tools, "critest"), "-runtime-endpoint=unix://" + b.Socket, "-image-endpoint=unix://" + b.Socket,
		"-ginkgo.seed=1", "-ginkgo.no-color", "-ginkgo.json-report=" + report}
	if focus != "" {
		args = append(args, "-ginkgo.focus="+focus)
	}
	before := segments(t)
	out, _ := n.Cmd(t.Context(), args...).CombinedOutput() // the report tells
	if log := os.Getenv("FAIRLEAD_CRITEST_LOG"); log != "" {
		require.NoError(t, os.WriteFile(log, out, 0o600))
	}
	for id := range segments(t) { // the suite leaves those that it makes
		if !before[id] {
			n.Run("ipcrm", "-m", id)
		}
	}
	return report
}

// segments are the shared memory segments of this machine (sysvipc(7)).
func segments(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("/proc/sysvipc/shm")
	require.NoError(t, err)
	out := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 6 && f[3] == "1048576" && f[6] == "0" { // its size, and nobody attached
			out[f[1]] = true
		}
	}
	return out
}

func (b *bed) pushImages(server string) {
	b.t.Helper()
	program, err := os.ReadFile(server)
	require.NoError(b.t, err, "run: make critest")
	for _, i := range images {
		folder := b.t.TempDir()
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, "Dockerfile"), []byte("FROM "+docker.Busybox+"\n"+i.dockerfile+"\n"), 0o600))
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, "server"), program, 0o755))
		b.e.Push(folder, i.names...)
	}
}

// judge wants every spec to pass but those that are known, and those to fail or,
// in a run of the whole suite, to be skipped. It gives the racy ones that failed.
func judge(t *testing.T, report string, whole bool) (unlucky []string) {
	t.Helper()
	raw, err := os.ReadFile(report)
	require.NoError(t, err)
	var suites []struct{ SpecReports []spec }
	require.NoError(t, json.Unmarshal(raw, &suites))
	count, idle := map[string]int{}, map[string]string{}
	for _, s := range suites[0].SpecReports {
		if s.LeafNodeType != "It" {
			continue
		}
		count[s.State]++
		if s.State == "skipped" || s.State == "pending" {
			idle[s.name()] = s.Failure.Message
			continue
		}
		if why, ok := racy[s.name()]; ok && s.State == "failed" {
			t.Logf("failed, tried again: %s: %s", s.name(), why)
			unlucky = append(unlucky, s.name())
			continue
		}
		_, expected := known[s.name()]
		if passed := s.State == "passed"; passed == expected {
			t.Errorf("%s: %s: %s", s.State, s.name(), s.Failure.Message)
		}
	}
	if whole {
		pinned := skips()
		require.ElementsMatch(t, slices.Collect(maps.Keys(pinned)), slices.Collect(maps.Keys(idle)), "skipped specs: %v", idle)
	}
	t.Logf("%v", count)
	return unlucky
}
