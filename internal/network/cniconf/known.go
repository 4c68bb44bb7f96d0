package cniconf

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Keys are the keys of the object that stands at a path in a plugin's
// configuration; none where it is absent or null.
func Keys(conf json.RawMessage, path ...string) (keys map[string]json.RawMessage, err error) {
	for i := 0; ; i++ {
		if len(conf) == 0 || string(conf) == "null" {
			return nil, nil
		}
		keys = nil
		if err := json.Unmarshal(conf, &keys); err != nil {
			return nil, fmt.Errorf("key %q: want an object, got %s", path[:i], kind(conf))
		}
		if i == len(path) {
			return keys, nil
		}
		conf = keys[path[i]]
	}
}

// OnlyKeys refuses every key but the known ones. Known ones in another case are
// refused too: encoding/json takes them, other readers do not.
func OnlyKeys(keys map[string]json.RawMessage, known ...string) error {
	for key := range keys {
		if !slices.Contains(known, key) {
			return fmt.Errorf("key %q is not known", key)
		}
	}
	return nil
}
