// Package inside does in a test's network namespace what people and pods do
// there: it runs programs, which are witnesses that are not the product's code,
// serves, and asks. It knows nothing of what made the network.
package inside

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Sh runs lines of shell one by one and gives all that they print. One that
// fails ends the test.
func Sh(t testing.TB, ns *netns.Handle, lines ...string) (all string) {
	t.Helper()
	for _, line := range lines {
		var out []byte
		err := ns.Do(func() (err error) {
			out, err = exec.Command("sh", "-c", line).CombinedOutput()
			return err
		})
		require.NoError(t, err, "%s: %s", line, out)
		all += string(out)
	}
	return all
}

// Run gives a program's standard output. Its failure ends the test, with what
// it said.
func Run(t testing.TB, ns *netns.Handle, name string, args ...string) string {
	t.Helper()
	var out, said bytes.Buffer
	err := ns.Do(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdout, cmd.Stderr = &out, &said
		return cmd.Run()
	})
	require.NoError(t, err, "%s %s: %s%s", name, strings.Join(args, " "), &out, &said)
	return out.String()
}

// Links are the names of the links but lo.
func Links(t testing.TB, ns *netns.Handle) (names []string) {
	t.Helper()
	var list []struct{ Ifname string }
	require.NoError(t, json.Unmarshal([]byte(Run(t, ns, "ip", "-j", "link")), &list))
	for _, l := range list {
		if l.Ifname != "lo" {
			names = append(names, l.Ifname)
		}
	}
	return names
}
