package cniconf

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// CapAnnotations is the capability by which a runtime hands over all of a pod's
// annotations, as text by key (containerd and CRI-O; `fairlead cri` too).
const CapAnnotations = "io.kubernetes.cri.pod-annotations"

const (
	// maxNotes bounds a pod's annotations, keys and values together, as the
	// Kubernetes API does.
	maxNotes = 256 << 10 // bytes
	// maxNoteKey is a DNS subdomain, a slash and a name.
	maxNoteKey = 253 + 1 + 63 // bytes
)

// podAnnotations reads runtimeConfig's value of CapAnnotations; nil where the
// runtime says nothing. null is how Go's encoders write that there are none.
func (r *reader) podAnnotations() map[string]string {
	rc := r.in("runtimeConfig")
	if _, told := rc.keys[CapAnnotations]; !told {
		return nil
	}
	notes, out, size := rc.in(CapAnnotations), map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(notes.keys)) {
		switch {
		case key == "":
			notes.refuse(notes.path, "a key is empty")
		case len(key) > maxNoteKey:
			notes.refuse(notes.path, "a key has %d bytes, the limit is %d", len(key), maxNoteKey)
		case !notes.has(key):
			notes.refuse(join(notes.path, key), "want a string, got null")
		}
		out[key] = notes.text(key)
		if size += len(key) + len(out[key]); size > maxNotes {
			notes.refuse(notes.path, "the annotations have more than %d bytes", maxNotes)
		}
		if *r.err != nil {
			return nil
		}
	}
	return out
}

// Lasting is a configuration that was accepted, without what is true only at
// the moment of the call: annotations change while the pod runs, and are large.
func Lasting(c core.Conf) (json.RawMessage, error) {
	if _, told := c.RuntimeConfig[CapAnnotations]; !told {
		return c.Raw, nil
	}
	keys := map[string]json.RawMessage{}
	err := json.Unmarshal(c.Raw, &keys)
	if err == nil {
		rest := maps.Clone(c.RuntimeConfig)
		delete(rest, CapAnnotations)
		keys["runtimeConfig"], err = json.Marshal(rest)
	}
	if err != nil {
		return nil, core.Errorf(core.CodeDecode, "leave pod annotations out of the configuration: %w", err)
	}
	raw, err := json.Marshal(keys)
	return raw, err
}
