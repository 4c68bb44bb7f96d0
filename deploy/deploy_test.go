package deploy

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instructions are the Dockerfile's, continuation lines joined, comments out.
func instructions(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// TestDockerfileBuilds runs the build stage's command as Docker would, in the
// tree that the stage copies: for the architectures of the image, and the plugin for all others that
// Kubernetes runs on; in make test, whose cache has nothing of others, for its own and the plugin
// for one more.
func TestDockerfileBuilds(t *testing.T) {
	src := t.TempDir()
	var build string
	for _, line := range instructions(t) {
		f := strings.Fields(line)
		switch {
		case f[0] == "COPY" && !strings.HasPrefix(f[1], "--from"):
			for _, name := range f[1 : len(f)-1] {
				require.NoError(t, exec.CommandContext(t.Context(), "cp", "-r", filepath.Join("..", name), src).Run(), line)
			}
		case strings.Contains(line, "go build"):
			build = strings.Replace(strings.TrimPrefix(line, "RUN "), "-trimpath ", "", 1) // as all that tests build: it is compiled once
		}
	}
	require.NotEmpty(t, build)
	// What .dockerignore leaves out must not be needed.
	require.NoError(t, exec.CommandContext(t.Context(), "find", src, "-name", "*_test.go", "-delete").Run())
	require.NoError(t, exec.CommandContext(t.Context(), "find", src, "-name", "testdata", "-prune", "-exec", "rm", "-r", "{}", ";").Run())

	const programs = "./cmd/fairlead ./cmd/fairlead-cni ./cmd/fairlead-controller"
	plugin := strings.Replace(build, programs, "./cmd/fairlead-cni", 1)
	require.NotEqual(t, build, plugin)
	requireProgram(t, runBuild(t, src, build, "amd64"), elf.EM_X86_64, "fairlead", "fairlead-cni", "fairlead-controller")
	requireProgram(t, runBuild(t, src, plugin, "arm64"), elf.EM_AARCH64, "fairlead-cni")
	if os.Getenv("FAIRLEAD_SOAK") == "" {
		return
	}
	requireProgram(t, runBuild(t, src, build, "arm64"), elf.EM_AARCH64, "fairlead", "fairlead-cni", "fairlead-controller")
	requireProgram(t, runBuild(t, src, plugin, "s390x"), elf.EM_S390, "fairlead-cni")
	requireProgram(t, runBuild(t, src, plugin, "ppc64le"), elf.EM_PPC64, "fairlead-cni")
	requireProgram(t, runBuild(t, src, plugin, "riscv64"), elf.EM_RISCV, "fairlead-cni")
}

// runBuild runs the build stage's command in src and returns the folder of what
// it made.
func runBuild(t *testing.T, src, build, arch string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(build, "/out/", out+"/"))
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "TARGETARCH="+arch, "VERSION=v9", "PGO=off")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", arch, text)
	return out
}

// requireProgram wants programs of one architecture that run on any base, have no more in
// them than they use, and a plugin that is as small as DESIGN.md says.
func requireProgram(t *testing.T, dir string, machine elf.Machine, names ...string) {
	t.Helper()
	for _, name := range names {
		f, err := elf.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, machine, f.Machine)
		libs, err := f.ImportedLibraries()
		require.NoError(t, err)
		require.Empty(t, libs, "%s must run on any base", name)
		require.NoError(t, f.Close())
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.False(t, bytes.Contains(b, []byte("text/template.(*state).evalField")),
			"%s: methods are called by name, for which the linker keeps all methods of all types (Makefile, TAGS)", name)
	}
	info, err := os.Stat(filepath.Join(dir, "fairlead-cni"))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(3<<20), "the plugin's size")
}

// TestDockerfileCopiesWhatItBuilds holds the stages together.
func TestDockerfileCopiesWhatItBuilds(t *testing.T) {
	text := strings.Join(instructions(t), "\n")
	require.Regexp(t, `(?m)^COPY --from=build /out/fairlead /out/fairlead-cni /usr/bin/$`, text)
	require.Regexp(t, `(?m)^COPY --from=build /out/fairlead-controller /usr/bin/$`, text)
	agent, controller := strings.Index(text, "ENTRYPOINT [\"/usr/bin/fairlead\"]"), strings.Index(text, "ENTRYPOINT [\"/usr/bin/fairlead-controller\"]")
	require.Less(t, controller, agent, "the last stage is what is built without --target")
	require.NotContains(t, text, ":latest")
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	require.Contains(t, text, "ARG GO="+version, "the Go version of go.mod")
	ignore, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	require.FileExists(t, "../"+regexp.MustCompile(`(?m)^ARG PGO=(\S+)$`).FindStringSubmatch(text)[1])
	for _, name := range regexp.MustCompile(`(?m)^COPY (\S+) \S+$`).FindAllStringSubmatch(text, -1) {
		require.Contains(t, string(ignore), "\n!"+name[1]+"\n")
	}
}
