package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/core"
)

// HandNetwork is the network name of attachments made by hand. It differs from
// that of any runtime's configuration: a runtime's GC removes what it does not
// know under its own name, and must never find these.
const HandNetwork = "fairlead-attach"

// Target is a sandbox to attach, check or detach.
type Target struct {
	Container string // id; the record's key and the host interface's name follow from it
	Netns     string // path; may be empty for DEL
	Pod       core.Pod
}

// Call is one CNI verb for a target.
type Call struct {
	Op     core.Op
	Target Target
	IfName string
	Path   []string // CNI_PATH, where delegates are found
	Config []byte   // a plugin configuration; DefaultConfig when nil
}

// Request is the call as the plugin would send it.
func (c Call) Request() cni.Request {
	conf := c.Config
	if conf == nil {
		conf = DefaultConfig()
	}
	return cni.Request{
		Command:     string(c.Op),
		ContainerID: c.Target.Container,
		Netns:       c.Target.Netns,
		IfName:      c.IfName,
		Args:        c.args(),
		Path:        strings.Join(c.Path, string(filepath.ListSeparator)),
		Config:      conf,
	}
}

// args is what kubelet and containerd send (runtime.md, section A).
func (c Call) args() string {
	kv := []string{"IgnoreUnknown=1"}
	for _, arg := range [][2]string{
		{"K8S_POD_NAMESPACE", c.Target.Pod.Namespace},
		{"K8S_POD_NAME", c.Target.Pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", c.Target.Container},
		{"K8S_POD_UID", c.Target.Pod.UID},
	} {
		if arg[1] != "" {
			kv = append(kv, arg[0]+"="+arg[1])
		}
	}
	return strings.Join(kv, ";")
}

// Recorded finds a sandbox in the agent's records by container id, a prefix of
// it, or the name of a container that Docker does not know any more. The
// namespace is left out: DEL needs the record only. Nothing found, or more than
// one container, is core.ErrNotFound.
func (c *Client) Recorded(ctx context.Context, ref string) (Target, error) {
	pods, err := c.Pods(ctx, "")
	if err != nil {
		return Target{}, err
	}
	found := map[string]Target{}
	for _, p := range pods.Items {
		byName := p.Namespace == dockerNamespace && p.Name == podName(ref)
		for _, a := range p.Attachments {
			if byName || strings.HasPrefix(a.Container, ref) {
				found[a.Container] = Target{Container: a.Container, Pod: core.Pod{Namespace: p.Namespace, Name: p.Name}}
			}
		}
	}
	ids := slices.Collect(maps.Keys(found))
	if len(ids) != 1 {
		return Target{}, fmt.Errorf("container %q: %d attached containers match: %w", ref, len(ids), core.ErrNotFound)
	}
	return found[ids[0]], nil
}

// Do makes the call and gives deliver the result.
func (c *Client) Do(ctx context.Context, call Call, deliver func([]byte) error) error {
	return c.CNI(ctx, call.Request(), deliver)
}

// DefaultConfig is the configuration of a call that names none: our own
// default network.
func DefaultConfig() []byte {
	return []byte(`{"cniVersion":"1.1.0","name":"` + HandNetwork + `","type":"fairlead"}`)
}

// ContainerOf makes a container id of a namespace's path, for a namespace that
// no runtime made: the same path gives the same id, so that `detach` finds what
// `attach` made.
func ContainerOf(netns string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(netns)))
	return hex.EncodeToString(sum[:])
}

// PluginConfig takes from a configuration file what our plugin would get on
// standard input: the file itself, or of a list its first entry of our own
// types with the list's name and version. Others are the types of the list's
// other entries, which only a runtime runs.
func PluginConfig(file []byte) (conf []byte, others []string, err error) {
	var list struct {
		CNIVersion string                       `json:"cniVersion"`
		Name       string                       `json:"name"`
		Plugins    []map[string]json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(file, &list); err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	if list.Plugins == nil {
		return bytes.TrimSpace(file), nil, nil
	}
	for _, p := range list.Plugins {
		var kind string
		_ = json.Unmarshal(p["type"], &kind) // not a text: no type of ours
		if conf != nil || !core.OwnType(kind) {
			others = append(others, kind)
			continue
		}
		if conf, err = withIdentity(p, list.Name, list.CNIVersion); err != nil {
			return nil, nil, err
		}
	}
	if conf == nil {
		return nil, nil, fmt.Errorf("the list %q has no plugin of type fairlead, kube-ovn or multus", list.Name)
	}
	return conf, others, nil
}

// withIdentity puts the list's name and version into an entry, as libcni does.
func withIdentity(p map[string]json.RawMessage, name, version string) ([]byte, error) {
	for key, value := range map[string]string{"name": name, "cniVersion": version} {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", key, err)
		}
		p[key] = raw
	}
	return json.Marshal(p)
}
