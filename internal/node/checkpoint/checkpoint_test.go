package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/checkpoint"
)

func named(uid, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "default"}, Spec: v1.PodSpec{NodeName: "n"}}
}

func TestCheckpoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below")
	f := checkpoint.New(dir)
	pods, err := f.Load()
	require.NoError(t, err)
	require.Empty(t, pods)
	require.NoError(t, f.Save(named("a", "old")))
	require.NoError(t, f.Save(named("a", "new")))
	require.NoError(t, f.Save(named("b", "gone")))
	require.NoError(t, f.Drop("b"))
	require.NoError(t, f.Drop("b"))
	pods, err = checkpoint.New(dir).Load()
	require.NoError(t, err)
	require.Equal(t, []*v1.Pod{named("a", "new")}, pods)
}

// TestDamaged: what a crash or the disk spoilt is left out and gone.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	f := checkpoint.New(dir)
	for _, uid := range []string{"cut", "bent", "renamed", "whole"} {
		require.NoError(t, f.Save(named(uid, "x")))
	}
	text, err := os.ReadFile(filepath.Join(dir, "bent.json"))
	require.NoError(t, err)
	text[20] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bent.json"), text, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "cut.json"), 30))
	require.NoError(t, os.Rename(filepath.Join(dir, "renamed.json"), filepath.Join(dir, "other.json")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".new-1"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".whole.json.1.tmp"), []byte("{"), 0o600))
	pods, err := f.Load()
	require.ErrorContains(t, err, "cut.json")
	require.ErrorContains(t, err, "bent.json")
	require.ErrorContains(t, err, "other.json")
	require.NotContains(t, err.Error(), "new-")
	require.NotContains(t, err.Error(), ".tmp", "a write that was cut off is no damage")
	require.Equal(t, []*v1.Pod{named("whole", "x")}, pods)
	pods, err = f.Load()
	require.NoError(t, err)
	require.Len(t, pods, 1)
}
