package declare_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/testbed/refusals"
)

// unread are fields that only the API server's rules look at.
var unread = []string{"spec.u2oInterconnectionIP", "spec.policyRouting", "spec.gatewayType", "spec.natOutgoingPolicyRules", "spec.acls"}

// TestAgreesWithTheAPIServer: an object in a folder is refused where the API
// server would refuse it, and only there.
func TestAgreesWithTheAPIServer(t *testing.T) {
	t.Parallel()
	n := 0
	for _, r := range refusals.All() {
		look, ok := readers[r.Kind]
		if !ok || isUnread(r.Says[0]) {
			continue
		}
		n++
		field, _, _ := strings.Cut(r.Says[0], "[")
		faults := look(t, r.Bad)
		require.NotEmpty(t, faults, "%s: %s", r.Kind, r.Bad)
		require.Contains(t, faults[0].Path, field, "%s: %s", r.Kind, r.Bad)
		if r.Good != "" {
			require.Empty(t, look(t, r.Good), "%s: %s", r.Kind, r.Good)
		}
	}
	require.Greater(t, n, 25)
}

var readers = map[string]func(*testing.T, string) []declare.Fault{
	"Subnet": func(t *testing.T, text string) []declare.Fault {
		t.Helper()
		var spec v1.SubnetSpec
		require.NoError(t, yaml.UnmarshalStrict([]byte("{"+text+"}"), &spec))
		_, faults := declare.ReadSubnet("s", spec)
		return faults
	},
	"Vlan": func(t *testing.T, text string) []declare.Fault {
		t.Helper()
		var spec v1.VlanSpec
		require.NoError(t, yaml.UnmarshalStrict([]byte("{"+text+"}"), &spec))
		_, faults := declare.ReadVlan(spec)
		return faults
	},
}

func isUnread(field string) bool {
	for _, u := range unread {
		if strings.HasPrefix(field, u) {
			return true
		}
	}
	return false
}
