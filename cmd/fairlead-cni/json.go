package main

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/fairlead/fairlead/api/cni"
)

// conf is what the plugin itself needs of a configuration. Whether the rest is
// right, and whether it is JSON at all, the agent says.
type conf struct {
	cniVersion string
	typ        string
	socket     string // the first of socket, server_socket, daemonSocketDir/agent.sock
}

// socketPath is where the agent listens.
func (c conf) socketPath() string {
	if c.socket != "" {
		return c.socket
	}
	return cni.DefaultSocket
}

// scanConf finds our keys at the top level of a configuration. Under a foreign
// type we are its IPAM plugin, and the socket stands in `ipam`.
func scanConf(data []byte) conf {
	keys := scanObject(data)
	c := conf{cniVersion: text(keys["cniVersion"]), typ: text(keys["type"]), socket: socketOf(keys)}
	if c.socket == "" && c.typ != "fairlead" && c.typ != "kube-ovn" && c.typ != "multus" {
		c.socket = socketOf(scanObject(keys["ipam"]))
	}
	return c
}

func socketOf(keys map[string][]byte) string {
	if s := text(keys["socket"]); s != "" {
		return s
	}
	if s := text(keys["server_socket"]); s != "" {
		return s
	}
	if dir := text(keys["daemonSocketDir"]); dir != "" {
		return dir + "/agent.sock"
	}
	return ""
}

// scanObject splits a JSON object into its keys and raw values. What follows a
// malformed place is not seen; the result is then what stands before it.
func scanObject(data []byte) map[string][]byte {
	keys := map[string][]byte{}
	s := scanner{data: data}
	if !s.take('{') {
		return keys
	}
	for {
		key, ok := s.str()
		if !ok || !s.take(':') {
			return keys
		}
		value, ok := s.value()
		if !ok {
			return keys
		}
		keys[key] = value
		if !s.take(',') {
			return keys
		}
	}
}

// text is the string that raw holds, "" for anything else.
func text(raw []byte) string {
	s := scanner{data: raw}
	v, _ := s.str()
	return v
}

// scanner walks over JSON without judging what it skips.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// take steps over c if it comes next.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.pos >= len(s.data) || s.data[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

// value steps over one value and gives its bytes: it counts brackets, which is
// right for every valid value.
func (s *scanner) value() ([]byte, bool) {
	s.space()
	from, depth := s.pos, 0
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			if depth > 0 {
				depth--
				s.pos++
			}
		case '"':
			if _, ok := s.str(); !ok {
				return nil, false
			}
		case ',', ':':
			s.pos++
		default:
			s.word()
		}
		if depth == 0 {
			return s.data[from:s.pos], s.pos > from
		}
		s.space()
	}
	return nil, false
}

// word steps over a number, true, false or null.
func (s *scanner) word() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ',', ':', '{', '}', '[', ']', '"', ' ', '\t', '\r', '\n':
			return
		}
		s.pos++
	}
}

// str reads a string and undoes its escapes.
func (s *scanner) str() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	var out []byte
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		s.pos++
		switch c {
		case '"':
			return string(out), true
		case '\\':
			if out = s.escape(out); out == nil {
				return "", false
			}
		default:
			out = append(out, c)
		}
	}
	return "", false
}

// escape reads what follows a backslash; nil for a malformed one.
func (s *scanner) escape(out []byte) []byte {
	if s.pos >= len(s.data) {
		return nil
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return append(out, c)
	case 'b':
		return append(out, '\b')
	case 'f':
		return append(out, '\f')
	case 'n':
		return append(out, '\n')
	case 'r':
		return append(out, '\r')
	case 't':
		return append(out, '\t')
	case 'u':
		if s.pos+4 > len(s.data) {
			return nil
		}
		r, err := strconv.ParseUint(string(s.data[s.pos:s.pos+4]), 16, 32)
		if err != nil {
			return nil
		}
		s.pos += 4
		// a half of a surrogate pair becomes U+FFFD: no socket path has one
		return utf8.AppendRune(out, rune(r))
	}
	return nil
}

// encodeRequest writes the request as the agent decodes it; fields in the
// order of cni.Request, empty ones left out.
func encodeRequest(r cni.Request) []byte {
	out := make([]byte, 0, base64.StdEncoding.EncodedLen(len(r.Config))+512)
	out = append(out, '{')
	for _, f := range []struct{ key, value string }{
		{"command", r.Command},
		{"containerID", r.ContainerID},
		{"netns", r.Netns},
		{"ifName", r.IfName},
		{"args", r.Args},
		{"path", r.Path},
		{"token", r.Token},
		{"bootID", r.BootID},
	} {
		if f.value != "" {
			out = append(appendString(append(appendString(out, f.key), ':'), f.value), ',')
		}
	}
	if r.Boottime != 0 {
		out = append(strconv.AppendInt(append(out, `"boottime":`...), r.Boottime, 10), ',')
	}
	out = append(out, `"config":"`...)
	out = base64.StdEncoding.AppendEncode(out, r.Config)
	return append(out, `"}`...)
}

// whole tells that data is one object and nothing else, as far as its brackets say.
func whole(data []byte) bool {
	s := scanner{data: data}
	object, ok := s.value()
	s.space()
	return ok && len(object) > 0 && object[0] == '{' && s.pos == len(data)
}

// decodeResponse reads the agent's answer.
func decodeResponse(body []byte) (cni.Response, bool) {
	if !whole(body) {
		return cni.Response{}, false
	}
	keys := scanObject(body)
	out := cni.Response{Failed: string(keys["failed"]) == "true"}
	raw, ok := keys["output"]
	if !ok || string(raw) == "null" {
		return out, true
	}
	var err error
	out.Output, err = base64.StdEncoding.DecodeString(text(raw))
	return out, err == nil && len(raw) > 0 && raw[0] == '"'
}

const hex = "0123456789abcdef"

// appendString writes s as a JSON string; bytes that are not UTF-8 become
// U+FFFD, as in encoding/json.
func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r < 0x20:
			out = append(out, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}

func number(n int) string { return strconv.Itoa(n) }
