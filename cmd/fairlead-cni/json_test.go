package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
)

func TestScanConf(t *testing.T) {
	for text, want := range map[string]conf{
		``:                           {},
		`null`:                       {},
		`{"cniVersion":"1.0.0"`:      {cniVersion: "1.0.0"},
		`{"cniVersion":1,"type":[]}`: {},
		` { "type" : "fairlead" } `:  {typ: "fairlead"},
		`{"type":"fairlead","socket":"/a","server_socket":"/b"}`:                                  {typ: "fairlead", socket: "/a"},
		`{"server_socket":"/b","type":"kube-ovn","daemonSocketDir":"/d"}`:                         {typ: "kube-ovn", socket: "/b"},
		`{"type":"multus","daemonSocketDir":"/d"}`:                                                {typ: "multus", socket: "/d/agent.sock"},
		`{"type":"multus","delegates":[{"socket":"/no","x":"}]"}],"cniVersion":"0.3.1"}`:          {typ: "multus", cniVersion: "0.3.1"},
		`{"type":"multus","delegates":[{"socket":"/no"}],"socket":"/s"}`:                          {typ: "multus", socket: "/s"},
		`{"type":"macvlan","ipam":{"type":"kube-ovn","server_socket":"/i"}}`:                      {typ: "macvlan", socket: "/i"},
		`{"type":"fairlead","ipam":{"server_socket":"/i"}}`:                                       {typ: "fairlead"},
		`{"n":-1.5e3,"t":true,"e":"\"\\\/\b\f\n\r\t\u0041","type":"fairlead","socket":"\u002fs"}`: {typ: "fairlead", socket: "/s"},
		`{"type":"fairlead","socket":{"a":"/x"}}`:                                                 {typ: "fairlead"},
	} {
		require.Equal(t, want, scanConf([]byte(text)), text)
	}
	require.Equal(t, cni.DefaultSocket, conf{}.socketPath())
}

func TestEncodeRequestIsWhatTheAgentDecodes(t *testing.T) {
	for _, want := range []cni.Request{
		{Command: "ADD", ContainerID: "c", Netns: "/n", IfName: "eth0", Args: "A=\"\\\x01\t;B=ü", Path: "/a:/b", Config: []byte("{\"x\":\n1}\x00\xff")},
		{Command: "GC", Config: []byte{}},
		{Command: "DEL", Token: "t", Boottime: 17, BootID: "b", Config: []byte{}},
	} {
		var got cni.Request
		require.NoError(t, json.Unmarshal(encodeRequest(want), &got))
		require.Equal(t, want, got)
	}
}

func TestDecodeResponse(t *testing.T) {
	for _, want := range []cni.Response{{}, {Failed: true, Output: []byte(`{"code":7}`)}, {Output: []byte{0, 1, 255}}} {
		body, err := json.Marshal(want)
		require.NoError(t, err)
		got, ok := decodeResponse(body)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{``, `null`, `[]`, `{`, `{"output":3}`, `{"output":"%"}`, `{} x`, `"x"`} {
		_, ok := decodeResponse([]byte(bad))
		require.False(t, ok, bad)
	}
}

// FuzzScan holds the scanner against encoding/json: whatever that reads, the
// scanner reads alike, and nothing makes it panic.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"type":"fairlead","socket":"/s","x":[{"y":"]"}]}`))
	f.Add([]byte(`{"a":"\ud800"}`))
	f.Add([]byte(`{"a":{"b":[1,2,{"c":"}"}]},"type":"multus"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		scanConf(in)
		decodeResponse(in)
		var want map[string]json.RawMessage
		if json.Unmarshal(in, &want) != nil {
			return
		}
		got := scanObject(in)
		for k, raw := range got {
			if ref, ok := want[k]; ok && !json.Valid(raw) {
				t.Fatalf("key %q: %q, want %q", k, raw, ref)
			}
		}
		if plain(in) && len(got) != len(want) {
			t.Fatalf("%d keys, want %d: %s", len(got), len(want), in)
		}
	})
}

// plain: without surrogates and broken UTF-8, which the scanner does not pair.
func plain(in []byte) bool {
	for _, c := range in {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}
