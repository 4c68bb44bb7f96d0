package doctor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ops/doctor"
)

func TestSecretEnv(t *testing.T) {
	require.Equal(t, []string{"abc", "d=e"}, doctor.SecretEnv([]string{"HOME=/root", "DB_PASSWORD=abc", "API_TOKEN=d=e", "EMPTY_KEY="}))
}

func TestLoadObjects(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(`apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: "n", namespace: default}
spec: {config: '{"cniVersion":"0.3.1","type":"macvlan","ipam":{"type":"host-local"}}'}
---
kind: Podd
`), 0o600))
	problems, types, err := doctor.LoadObjects(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, filepath.Join(dir, "a.yaml"), problems[0].File)
	require.Equal(t, []string{"macvlan", "host-local"}, types)
	_, _, err = doctor.LoadObjects(t.Context(), dir+"/none")
	require.Error(t, err)
}
