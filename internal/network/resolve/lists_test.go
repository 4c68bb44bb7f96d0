package resolve

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestListsThatSayNothing: a list without an address, or with one twice, was
// meant to say something; the refusal names the key.
func TestListsThatSayNothing(t *testing.T) {
	for key, values := range map[string][]string{
		"k8s.v1.cni.cncf.io/networks": {"br@x@y", "br@x,br@y@", `[{"name":"br","ips":[]}]`},
		"ovn.kubernetes.io/ip_pool":   {";;;", ",", "10.16.0.5;10.16.0.5", strings.Repeat("10.16.0.5;", 20_000)},
	} {
		for _, value := range values {
			errs := CheckAnnotations("default", map[string]string{key: value})
			require.Len(t, errs, 1, value[:min(40, len(value))])
			require.Equal(t, core.CodeValue, core.CodeOf(errs[0]))
			require.ErrorContains(t, errs[0], key)
			require.Less(t, len(errs[0].Error()), 400)
		}
	}
}
