package cniconf

import (
	"encoding/json"
	"slices"
	"strings"
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
	w := walk{data: data}
	return w.value("", 1)
}

// walk goes through a text that is one JSON value: what encoding/json's own
// decoder tells of it token by token costs as much as all other reading of a
// configuration.
type walk struct {
	data []byte
	at   int
}

// value passes one value; where is the path of keys that led to it.
func (w *walk) value(where string, depth int) error {
	switch w.next() {
	case '{', '[':
		if depth > maxDepth {
			return core.Errorf(core.CodeConfig, "%s: nested deeper than %d", place(where), maxDepth)
		}
		return w.inside(where, depth)
	case '"':
		w.text()
	default: // a number or a word
		for w.at < len(w.data) && strings.IndexByte(" \t\r\n,]}", w.data[w.at]) < 0 {
			w.at++
		}
	}
	return nil
}

// inside passes an object or an array.
func (w *walk) inside(where string, depth int) error {
	object := w.data[w.at] == '{'
	w.at++
	var seen keys
	for {
		switch w.next() {
		case '}', ']':
			w.at++
			return nil
		case ',':
			w.at++
			continue
		}
		inner := where
		if object {
			key := unquote(w.text())
			if inner = join(where, key); !seen.add(key) {
				return core.Errorf(core.CodeConfig, "key %q stands twice", inner)
			}
			w.next()
			w.at++ // the colon
		}
		if err := w.value(inner, depth+1); err != nil {
			return err
		}
	}
}

// next passes white space and tells what follows, 0 for nothing.
func (w *walk) next() byte {
	for w.at < len(w.data) {
		switch c := w.data[w.at]; c {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return c
		}
	}
	return 0
}

// text passes a string and gives it with its quotes.
func (w *walk) text() []byte {
	from := w.at
	for w.at++; w.data[w.at] != '"'; w.at++ {
		if w.data[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
	return w.data[from:w.at]
}

func unquote(quoted []byte) string {
	plain := string(quoted[1 : len(quoted)-1])
	if strings.Contains(plain, `\`) {
		_ = json.Unmarshal(quoted, &plain) // it is valid
	}
	return plain
}

// keys are those of one object. Few have more than a handful.
type keys struct {
	few  []string
	many map[string]bool
}

const aFew = 16

// add refuses a key that is there.
func (k *keys) add(key string) bool {
	if k.many[key] || slices.Contains(k.few, key) {
		return false
	}
	if len(k.few) < aFew {
		k.few = append(k.few, key)
		return true
	}
	if k.many == nil {
		k.many = map[string]bool{}
	}
	k.many[key] = true
	return true
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
