package vfpolicy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/testbed/refusals"
)

// TestAgreesWithTheAPIServer: a NodeVFPolicy in a folder is refused where the API server
// would refuse it, and only there.
func TestAgreesWithTheAPIServer(t *testing.T) {
	check := func(text string) error {
		var p v1alpha1.NodeVFPolicy
		require.NoError(t, yaml.UnmarshalStrict([]byte("spec: {"+text+"}"), &p))
		return vfpolicy.Check(&p.Spec)
	}
	n := 0
	for _, r := range refusals.All() {
		if r.Kind != "NodeVFPolicy" {
			continue
		}
		n++
		require.Error(t, check(r.Bad), r.Bad)
		if r.Good != "" {
			require.NoError(t, check(r.Good), r.Good)
		}
	}
	require.Greater(t, n, 10)
}
