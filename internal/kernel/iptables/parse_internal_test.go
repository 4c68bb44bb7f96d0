package iptables

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse: rules are their chains', and what cannot be read to its end is no table
// without the rest.
func TestParse(t *testing.T) {
	t.Parallel()
	const text = "*nat\n:OVN-NAT - [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j OVN-NAT\nCOMMIT\n"
	got, err := parse([]byte(text))
	require.NoError(t, err)
	require.Equal(t, map[string][]Chain{"nat": {{Name: "OVN-NAT"}, {Name: "POSTROUTING", Rules: []string{"-j OVN-NAT"}}}}, got.Chains)
	_, err = parse([]byte("*filter\n:LONG - [0:0]\n-A LONG " + strings.Repeat("x", 2<<20) + "\nCOMMIT\n" + text))
	require.Error(t, err)
}
