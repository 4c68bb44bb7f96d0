package cniconf

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// byTokens is what Strict says of a valid value, by encoding/json's own decoder.
func byTokens(d *json.Decoder, depth int) (code uint) {
	t, err := d.Token()
	if err != nil {
		return core.CodeDecode
	}
	open, ok := t.(json.Delim)
	if !ok {
		return 0
	}
	if depth > maxDepth {
		return core.CodeConfig
	}
	seen := map[json.Token]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil || seen[key] {
				return core.CodeConfig
			}
			seen[key] = true
		}
		if code := byTokens(d, depth+1); code != 0 {
			return code
		}
	}
	_, _ = d.Token()
	return 0
}

// FuzzStrict: our walk of a text and that of encoding/json agree.
func FuzzStrict(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[true,null,-1.5e3,"x\"]}"],"a\u0062":{"c":{}, "d" : [ ] }}`, `{"a":1,"\u0061":2}`, ` [ {"":[[]]} , "\\" ] `,
		`{"a":{"b":1,"c":2,"b":3}}`, `"\ud800"`, "7", `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"10":1,"11":1,"12":1,"13":1,"14":1,"15":1,"16":1,"17":1,"18":1,"17":1}`,
		"1e999", string(bytes.Repeat([]byte("["), 33)) + string(bytes.Repeat([]byte("]"), 33)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		err := Strict(in)
		refusedWell(t, err)
		if err != nil && core.CodeOf(err) == core.CodeDecode {
			return // encoding/json refuses it before anybody walks
		}
		d := json.NewDecoder(bytes.NewReader(in))
		d.UseNumber()
		require.True(t, json.Valid(in))
		var got uint
		if err != nil {
			got = core.CodeOf(err)
		}
		require.Equal(t, byTokens(d, 1), got, "%s", in)
	})
}
