package exec_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
)

const pci = `{"type":"pci", "version":"1.1.0", "pci":{"pci-address":"0000:03:02.1"}}`

// informed is a spec whose plugin is a script, with a device information file
// of a device plugin that holds text ("": there is none).
func informed(t *testing.T, text, body string) core.Spec {
	t.Helper()
	s, dir := scripted(t, body), t.TempDir()
	s.Exec.DevInfo = &core.DevInfo{DP: filepath.Join(dir, "dp", "r-1-device.json"), CNI: filepath.Join(dir, "devinfo", "cni", "c1-device.json")}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dp"), 0o755))
	if text != "" {
		require.NoError(t, os.WriteFile(s.Exec.DevInfo.DP, []byte(text), 0o600))
	}
	return s
}

const answer = `; echo '{"cniVersion":"1.0.0"}'`

func TestDeviceInformationReachesPluginAndStatus(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	s := informed(t, pci, `f=`+seen+`; [ "$CNI_COMMAND" = DEL ] && f=$f.del; cat >/dev/null; cat $(dirname $0)/where | xargs cat >$f`+answer)
	require.NoError(t, os.WriteFile(filepath.Join(s.Exec.Path[0], "where"), []byte(s.Exec.DevInfo.CNI), 0o600))
	l, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	const compact = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:02.1"}}`
	require.Equal(t, compact, string(l.DeviceInfo))
	require.Empty(t, l.Warnings)
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	require.Equal(t, compact, string(text), "the plugin could read it")
	st, err := os.Stat(s.Exec.DevInfo.CNI)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), st.Mode().Perm())
	// a second Attach finds its own work
	_, err = exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)

	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	text, err = os.ReadFile(seen + ".del")
	require.NoError(t, err)
	require.Equal(t, compact, string(text), "the plugin's DEL could still read it")
	require.NoFileExists(t, s.Exec.DevInfo.CNI)
	require.FileExists(t, s.Exec.DevInfo.DP, "the device plugin's own")
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
}

func TestPluginWritesTheFileWhereThereIsNone(t *testing.T) {
	s := informed(t, "", `cat >/dev/null; [ $CNI_COMMAND = DEL ] && exit 0; f=$(cat $(dirname $0)/where); [ ! -e "$f" ] || exit 9; mkdir -p $(dirname "$f"); echo '{"type":"memif"}' >"$f"`+answer)
	require.NoError(t, os.WriteFile(filepath.Join(s.Exec.Path[0], "where"), []byte(s.Exec.DevInfo.CNI), 0o600))
	l, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.Equal(t, `{"type":"memif"}`, string(l.DeviceInfo))
	// what an earlier attempt left tells of another device
	_, err = exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	require.NoFileExists(t, s.Exec.DevInfo.CNI)
}

func TestOnlyTheChainsFirstPluginMakesAndRemovesTheFile(t *testing.T) {
	s := informed(t, pci, `cat >/dev/null`+answer)
	later := s
	call := *s.Exec
	call.DevInfo = &core.DevInfo{DP: s.Exec.DevInfo.DP, CNI: s.Exec.DevInfo.CNI, Shared: true}
	later.Exec = &call
	_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.NoError(t, os.Remove(s.Exec.DevInfo.CNI))
	require.NoError(t, os.WriteFile(s.Exec.DevInfo.CNI, []byte(`{"type":"vdpa"}`), 0o444))
	l, err := exec.New(nil).Attach(t.Context(), driver.Run{}, later)
	require.NoError(t, err)
	require.Equal(t, `{"type":"vdpa"}`, string(l.DeviceInfo), "a plugin before it had changed the file")
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, later))
	require.FileExists(t, s.Exec.DevInfo.CNI)
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	require.NoFileExists(t, s.Exec.DevInfo.CNI)
}

// The network works without; the user hears why the status lacks it.
func TestDeviceInformationThatCannotBeUsedIsAWarning(t *testing.T) {
	for name, c := range map[string]struct{ text, words string }{
		"no JSON":    {"hello", "not JSON"},
		"cut":        {`{"type":`, "not JSON"},
		"a list":     {`[1]`, "want a JSON object"},
		"null":       {`null`, "want a JSON object"},
		"twice":      {`{"type":"a","type":"b"}`, "type"},
		"too big":    {`{"type":"` + strings.Repeat("x", 64<<10) + `"}`, "65536 bytes"},
		"an empty":   {" ", "not JSON"},
		"deep":       {strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), "a.a"},
		"not UTF-8":  {"{\"type\":\"\xff\"}", "UTF-8"},
		"two values": {`{} {}`, "not JSON"},
	} {
		s := informed(t, c.text, `cat >/dev/null`+answer)
		l, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err, name)
		require.Empty(t, l.DeviceInfo, name)
		require.Len(t, l.Warnings, 1, name)
		require.Contains(t, l.Warnings[0], c.words, name)
		require.Contains(t, l.Warnings[0], s.Exec.DevInfo.DP, name)
		require.NoFileExists(t, s.Exec.DevInfo.CNI, name)

		// the same from a plugin
		s.Exec.DevInfo.DP = ""
		require.NoError(t, os.MkdirAll(filepath.Dir(s.Exec.DevInfo.CNI), 0o755))
		body := "#!/bin/sh\ncat >/dev/null; [ $CNI_COMMAND = ADD ] && cp $(dirname $0)/text " + s.Exec.DevInfo.CNI + answer + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(s.Exec.Path[0], "text"), []byte(c.text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(s.Exec.Path[0], "p"), []byte(body), 0o755))
		l, err = exec.New(nil).Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err, name)
		require.Empty(t, l.DeviceInfo, name)
		require.Len(t, l.Warnings, 1, name)
		require.Contains(t, l.Warnings[0], c.words, name)
		require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s), name)
		require.NoFileExists(t, s.Exec.DevInfo.CNI, name)
	}
}

// Whoever may write into the folder must not have the agent read or hang on
// something else.
func TestDeviceInformationIsARegularFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(`{"token":"x"}`), 0o600))
	for name, lay := range map[string]func(path string) error{
		"a link":   func(path string) error { return os.Symlink(secret, path) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		s := informed(t, "", `cat >/dev/null`+answer)
		require.NoError(t, lay(s.Exec.DevInfo.DP), name)
		l, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
		require.NoError(t, err, name)
		require.Empty(t, l.DeviceInfo, name)
		require.Len(t, l.Warnings, 1, name)
		require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s), name)
	}
}

// The file comes after the record and before the plugin: a crash at any point
// leaves nothing that the record does not remove.
func TestDeviceInformationIsWrittenOnceThePluginIsOnRecord(t *testing.T) {
	s := informed(t, pci, `cat >/dev/null; exit 3`)
	no := errors.New("disk full")
	run := driver.Run{Report: func(context.Context, core.Proc) error {
		require.NoFileExists(t, s.Exec.DevInfo.CNI)
		return no
	}}
	_, err := exec.New(nil).Attach(t.Context(), run, s)
	require.ErrorIs(t, err, no)
	require.NoFileExists(t, s.Exec.DevInfo.CNI)

	no = nil
	_, err = exec.New(nil).Attach(t.Context(), run, s)
	require.Error(t, err)
	require.FileExists(t, s.Exec.DevInfo.CNI, "the roll-back removes it")
	require.Error(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	require.FileExists(t, s.Exec.DevInfo.CNI, "a DEL that failed is called again")
	require.NoError(t, os.WriteFile(s.Exec.DevInfo.CNI+".tmp", nil, 0o600), "an agent that died while it wrote")
	require.NoError(t, os.WriteFile(filepath.Join(s.Exec.Path[0], "p"), []byte("#!/bin/sh\ncat >/dev/null\n"), 0o755))
	require.NoError(t, exec.New(nil).Detach(t.Context(), driver.Run{}, s))
	left, err := os.ReadDir(filepath.Dir(s.Exec.DevInfo.CNI))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAFolderThatCannotBeWrittenIsAnError(t *testing.T) {
	s := informed(t, pci, `cat >/dev/null`+answer)
	s.Exec.DevInfo.CNI = filepath.Join(s.Exec.DevInfo.DP, "cni", "x") // below a file
	_, err := exec.New(nil).Attach(t.Context(), driver.Run{}, s)
	require.Equal(t, core.CodeIO, core.CodeOf(err))
	require.ErrorContains(t, err, "device information file")
}
