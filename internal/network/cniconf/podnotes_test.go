package cniconf

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func withNotes(notes string) []byte {
	return []byte(`{"cniVersion":"1.1.0","name":"n","type":"fairlead","runtimeConfig":{"portMappings":[],"io.kubernetes.cri.pod-annotations":` + notes + `}}`)
}

// TestPodAnnotations: what a runtime may tell, and what it may not.
func TestPodAnnotations(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for notes, want := range map[string]map[string]string{
		`null`:                           {},
		`{}`:                             {},
		`{"a/b":"","c":"[{\"d\":1}]"}`:   {"a/b": "", "c": `[{"d":1}]`},
		`{"Key":"1","key":"2"}`:          {"Key": "1", "key": "2"},
		`{"a":"` + long + `","b":"ünï"}`: {"a": long, "b": "ünï"},
	} {
		c, err := Parse(withNotes(notes))
		require.NoError(t, err)
		require.Equal(t, want, c.Annotations)
		lasting, err := Lasting(c)
		require.NoError(t, err)
		require.JSONEq(t, `{"cniVersion":"1.1.0","name":"n","type":"fairlead","runtimeConfig":{"portMappings":[]}}`, string(lasting))
	}
	for notes, says := range map[string]string{
		`"a=b"`:                      `"runtimeConfig.io.kubernetes.cri.pod-annotations": want an object`,
		`["a"]`:                      "want an object",
		`{"a":1}`:                    `"runtimeConfig.io.kubernetes.cri.pod-annotations.a": want a string`,
		`{"a":null}`:                 "pod-annotations.a",
		`{"a":{"b":"c"}}`:            "pod-annotations.a",
		`{"":"b"}`:                   "a key is empty",
		`{"` + long[:400] + `":"b"}`: "a key has 400 bytes, the limit is 317",
		`{"a":"` + long + long + `","b":"` + long + `"}`: "more than 262144 bytes",
		`{"a":"b","a":"c"}`: "pod-annotations",
	} {
		_, err := Parse(withNotes(notes))
		require.Equal(t, core.CodeConfig, core.CodeOf(err), "%.80s: %v", notes, err)
		require.ErrorContains(t, err, says)
	}
	c, err := Parse([]byte(`{"cniVersion":"1.1.0","name":"n","type":"fairlead","runtimeConfig":{"portMappings":[]}}`))
	require.NoError(t, err)
	require.Nil(t, c.Annotations, "nothing told")
	lasting, err := Lasting(c)
	require.NoError(t, err)
	require.Equal(t, string(c.Raw), string(lasting))
}
