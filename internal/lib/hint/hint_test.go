package hint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/hint"
)

// TestShell: commands that ask the agent are called as their reader can, names
// and commands that are run elsewhere stay.
func TestShell(t *testing.T) {
	const pod = hint.Shell("kubectl -n kube-system exec fairlead-agent-x -- fairlead")
	for _, c := range []struct{ text, want string }{
		{"see `fairlead status`, then `fairlead doctor`", "see `" + string(pod) + " status`, then `" + string(pod) + " doctor`"},
		{"    next: sudo fairlead doctor", "    next: " + string(pod) + " doctor"},
		{"`fairlead ip who 10.0.0.1`", "`" + string(pod) + " ip who 10.0.0.1`"},
		{"`fairlead install` gives it; `fairlead gcc`", "`fairlead install` gives it; `fairlead gcc`"},
		{"Subnet fairlead is `fairlead`'s; fairlead status", "Subnet fairlead is `fairlead`'s; fairlead status"},
	} {
		require.Equal(t, c.text, hint.Shell("").In(c.text))
		require.Equal(t, c.want, pod.In(c.text))
		require.Equal(t, c.want, pod.In(c.want), "once is enough")
	}
	require.Equal(t, "`$1 $(x) gc`", hint.Shell("$1 $(x)").In("`fairlead gc`"), "taken as it stands")
}
