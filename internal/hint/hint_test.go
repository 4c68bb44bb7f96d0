package hint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/hint"
)

func TestShell(t *testing.T) {
	const text = "see `fairlead status`, then `fairlead doctor`; Subnet fairlead is `fairlead`'s"
	require.Equal(t, text, hint.Shell("").In(text))
	pod := hint.Shell("kubectl -n kube-system exec fairlead-agent-x -- fairlead")
	want := "see `kubectl -n kube-system exec fairlead-agent-x -- fairlead status`, then " +
		"`kubectl -n kube-system exec fairlead-agent-x -- fairlead doctor`; Subnet fairlead is `fairlead`'s"
	require.Equal(t, want, pod.In(text))
	require.Equal(t, want, pod.In(pod.In(text)), "once is enough")
	require.Equal(t, "fairlead gc", hint.Shell("").Command("gc"))
	require.Equal(t, "kubectl -n kube-system exec fairlead-agent-x -- fairlead gc", pod.Command("gc"))
}
