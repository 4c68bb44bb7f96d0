package question

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ops/client"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// TestRelayEndsWithTheQuestion: an API server that takes connections and says nothing
// holds a command no longer than its limit.
func TestRelayEndsWithTheQuestion(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://%s"}}],
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}`, silent.Addr()), 0o600))
	api, err := query.New(query.Options{Files: []string{file}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Question{Ask: func(_ context.Context, a Asked) (view.Answer, error) {
			_, err := a.relay("nb")
			return view.Answer{}, err
		}}.Answer(ctx, Asked{Origin: client.Origin{API: api}, Flags: map[string]string{"install-namespace": "kube-system"}})
		ended <- err
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(20 * time.Second):
		require.Fail(t, "it still waits")
	}
}
