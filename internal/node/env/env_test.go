package env

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpand(t *testing.T) {
	v := &Variables{}
	v.set("A", "1")
	v.set("B", "$(A)")
	for text, want := range map[string]string{
		"": "", "$(A)": "1", "x$(A)y": "x1y", "$$(A)": "$(A)", "$(C)": "$(C)", "$(B)": "$(A)", "$": "$", "$(A": "$(A", "a)b": "a)b", "$$": "$",
	} {
		require.Equal(t, want, v.Expand(text), text)
	}
}
