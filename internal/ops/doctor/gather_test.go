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
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}, spec: {podSelector: {}}}
`), 0o600))
	for ovn, policy := range map[bool]int{true: 0, false: 1} { // without OVN nobody carries it out
		problems, _, err := doctor.LoadObjects(dir, ovn)
		require.NoError(t, err)
		require.Len(t, problems, 1+policy)
	}
	problems, types, err := doctor.LoadObjects(dir, true)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, filepath.Join(dir, "a.yaml"), problems[0].File)
	require.Equal(t, []string{"macvlan", "host-local"}, types)
	_, _, err = doctor.LoadObjects(dir+"/none", false)
	require.Error(t, err)
}
