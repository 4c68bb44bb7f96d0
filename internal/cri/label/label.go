// Package label is how a pod's parts are named in Docker: the names and labels
// of dockershim, so that tools which know those recognise ours, and one label of
// our own that keeps what a name cannot. It knows neither Docker nor CRI calls.
package label

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/moby/moby/client"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dockershim's labels.
const (
	Type    = "io.kubernetes.docker.type"
	Sandbox = "io.kubernetes.sandbox.id"        // of a container: its sandbox
	LogPath = "io.kubernetes.container.logpath" // of a container: absolute path of its log
	Name    = "io.kubernetes.container.name"    // of a sandbox: POD

	annotation = "annotation." // before the key of an annotation
	typePod    = "podsandbox"
	typeCtr    = "container"
	podName    = "POD"
)

// Own labels. Names in CRI may hold what Docker's must not, and an image is known
// to people by another name than to the engine.
const (
	Metadata = "fairlead.io/metadata" // JSON of the CRI metadata
	Image    = "fairlead.io/image"    // JSON of the ImageSpec that a container was made from
	Handler  = "fairlead.io/runtime-handler"
	Covered  = "fairlead.io/recursive-read-only" // JSON of []Cover
)

// Cover is a mount that is read-only with all mounts below it: those are mounted
// once more each, read-only.
type Cover struct {
	Source string   `json:"source"`
	Target string   `json:"target"`
	Below  []string `json:"below,omitempty"` // paths relative to both
}

// Covers are those of a container.
func Covers(labels map[string]string) ([]Cover, error) {
	text, ok := labels[Covered]
	if !ok {
		return nil, nil
	}
	var out []Cover
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("label %s: %w", Covered, err)
	}
	return out, nil
}

// SetCovers notes them, if there are any.
func SetCovers(labels map[string]string, covers []Cover) {
	if len(covers) > 0 {
		labels[Covered] = encode(covers)
	}
}

// metadata is JSON of PodSandboxMetadata, and of ContainerMetadata with
// name and attempt alone.
type metadata struct {
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Attempt   uint32 `json:"attempt"`
}

// SandboxName is dockershim's: k8s_POD_<pod>_<namespace>_<uid>_<attempt>.
func SandboxName(m *cri.PodSandboxMetadata) string {
	return join(podName, m.Name, m.Namespace, m.Uid, m.Attempt)
}

// ContainerName is dockershim's: k8s_<name>_<pod>_<namespace>_<uid>_<attempt>.
func ContainerName(c *cri.ContainerMetadata, m *cri.PodSandboxMetadata) string {
	return join(c.Name, m.Name, m.Namespace, m.Uid, c.Attempt)
}

func join(name, pod, namespace, uid string, attempt uint32) string {
	return fmt.Sprintf("k8s_%s_%s_%s_%s_%d", clean(name), clean(pod), clean(namespace), clean(uid), attempt)
}

// clean replaces what Docker takes in no name.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, s)
}

// ForSandbox are the labels of a sandbox.
func ForSandbox(c *cri.PodSandboxConfig, handler string) map[string]string {
	m := c.Metadata
	out := with(c.Labels, c.Annotations)
	out[Type], out[Name] = typePod, podName
	out[Metadata] = encode(metadata{m.Name, m.Uid, m.Namespace, m.Attempt})
	if handler != "" {
		out[Handler] = handler
	}
	return out
}

// ForContainer are the labels of a container; logPath is absolute, or "".
func ForContainer(c *cri.ContainerConfig, sandbox, logPath string) map[string]string {
	out := with(c.Labels, c.Annotations)
	out[Type], out[Sandbox], out[LogPath] = typeCtr, sandbox, logPath
	out[Metadata] = encode(metadata{Name: c.Metadata.Name, Attempt: c.Metadata.Attempt})
	out[Image] = encode(c.Image)
	return out
}

func with(labels, annotations map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range annotations {
		out[annotation+k] = v
	}
	return out
}

// encode cannot fail for the types it is given.
func encode(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// Read gives back the labels and annotations of CRI.
func Read(labels map[string]string) (own, annotations map[string]string) {
	own, annotations = map[string]string{}, map[string]string{}
	for k, v := range labels {
		if a, ok := strings.CutPrefix(k, annotation); ok {
			annotations[a] = v
		} else if !internal(k, v) {
			own[k] = v
		}
	}
	return own, annotations
}

func internal(k, v string) bool {
	switch k {
	case Type, Sandbox, LogPath, Metadata, Image, Handler, Covered:
		return true
	case Name:
		return v == podName
	}
	return false
}

// SandboxMetadata reads what ForSandbox or dockershim wrote.
func SandboxMetadata(name string, labels map[string]string) *cri.PodSandboxMetadata {
	m, err := decode(labels)
	if err != nil {
		if p := strings.Split(strings.TrimPrefix(name, "/"), "_"); len(p) >= 6 {
			m = metadata{p[2], p[4], p[3], number(p[5])}
		}
	}
	return &cri.PodSandboxMetadata{Name: m.Name, Uid: m.UID, Namespace: m.Namespace, Attempt: m.Attempt}
}

// ContainerMetadata reads what ForContainer or dockershim wrote.
func ContainerMetadata(name string, labels map[string]string) *cri.ContainerMetadata {
	m, err := decode(labels)
	if err != nil {
		if p := strings.Split(strings.TrimPrefix(name, "/"), "_"); len(p) >= 6 {
			m = metadata{Name: p[1], Attempt: number(p[5])}
		}
	}
	return &cri.ContainerMetadata{Name: m.Name, Attempt: m.Attempt}
}

func decode(labels map[string]string) (m metadata, err error) {
	err = json.Unmarshal([]byte(labels[Metadata]), &m)
	return m, err
}

func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32) // 0 is the first attempt
	return uint32(n)
}

// ImageSpec is the image that a container was made from; engine is what the
// engine calls it, for containers that are not ours.
func ImageSpec(labels map[string]string, engine string) *cri.ImageSpec {
	s := &cri.ImageSpec{}
	if err := json.Unmarshal([]byte(labels[Image]), s); err != nil || s.Image == "" {
		return &cri.ImageSpec{Image: engine}
	}
	return s
}

// Sandboxes selects the sandboxes that fit the labels.
func Sandboxes(selector map[string]string) client.Filters { return filter(typePod, selector) }

// Containers selects the containers that fit the labels.
func Containers(selector map[string]string) client.Filters { return filter(typeCtr, selector) }

// Parts selects sandboxes and containers.
func Parts() client.Filters {
	return client.Filters{}.Add("label", Type)
}

// Of selects the containers of a sandbox.
func Of(sandbox string) client.Filters {
	return Containers(map[string]string{Sandbox: sandbox})
}

func filter(kind string, selector map[string]string) client.Filters {
	f := client.Filters{}.Add("label", Type+"="+kind)
	for k, v := range selector {
		f.Add("label", k+"="+v)
	}
	return f
}

// IsSandbox tells by the labels.
func IsSandbox(labels map[string]string) bool { return labels[Type] == typePod }

// IsContainer tells by the labels.
func IsContainer(labels map[string]string) bool { return labels[Type] == typeCtr }
