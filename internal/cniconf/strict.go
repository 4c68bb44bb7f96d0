package cniconf

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/fairlead/fairlead/internal/core"
)

// maxDepth bounds the nesting of objects and arrays (reliability.md, Security).
const maxDepth = 32

// Strict refuses what two JSON readers could understand differently, and what
// could exhaust one: text that is not UTF-8, more or less than one value,
// nesting deeper than 32, a key that stands twice in one object. Code 6 is
// "not JSON", code 7 everything else.
func Strict(data []byte) error {
	if !utf8.Valid(data) {
		return core.Errorf(core.CodeDecode, "not JSON: the text is not UTF-8")
	}
	var one json.RawMessage
	if err := json.Unmarshal(data, &one); err != nil {
		return core.Errorf(core.CodeDecode, "not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // 1e999 is a valid number; only its reader may dislike it
	return strictValue(d, "", 1)
}

// strictValue walks one value; where is the path of keys that led to it.
func strictValue(d *json.Decoder, where string, depth int) error {
	t, err := d.Token()
	if err != nil {
		return core.Errorf(core.CodeDecode, "not JSON: %w", err)
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth > maxDepth {
		return core.Errorf(core.CodeConfig, "%s: nested deeper than %d", place(where), maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		inner := where
		if open == '{' {
			if inner, err = strictKey(d, where, seen); err != nil {
				return err
			}
		}
		if err := strictValue(d, inner, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing bracket
	return err
}

// strictKey reads a key and refuses one that was seen in the same object.
func strictKey(d *json.Decoder, where string, seen map[string]bool) (string, error) {
	t, err := d.Token()
	if err != nil {
		return "", core.Errorf(core.CodeDecode, "not JSON: %w", err)
	}
	key, _ := t.(string)
	path := join(where, key)
	if seen[key] {
		return "", core.Errorf(core.CodeConfig, "key %q stands twice", path)
	}
	seen[key] = true
	return path, nil
}

func join(where, key string) string {
	if where == "" {
		return key
	}
	return where + "." + key
}

func place(where string) string {
	if where == "" {
		return "the top level"
	}
	return "key \"" + where + "\""
}
