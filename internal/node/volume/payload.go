package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/downward"
	"github.com/fairlead/fairlead/internal/node/object"
)

// file is one that a volume is to have.
type file struct {
	data []byte
	mode os.FileMode
	user int // -1 is root
}

// payload maps paths below a volume to files.
type payload map[string]file

func (p payload) add(path string, data []byte, mode *int32, otherwise os.FileMode) {
	f := file{data, otherwise, -1}
	if mode != nil {
		f.mode = os.FileMode(*mode) & os.ModePerm
	}
	p[path] = f
}

// payload computes what a volume is to hold.
func (f *Folder) payload(ctx context.Context, pod *v1.Pod, v *v1.Volume) (payload, error) {
	out := payload{}
	namespace := pod.Namespace
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return out, f.configMap(out, namespace, s.Name, s.Items, s.Optional, modeOf(s.DefaultMode))
	case v.Secret != nil:
		s := v.Secret
		return out, f.secret(out, namespace, s.SecretName, s.Items, s.Optional, modeOf(s.DefaultMode))
	case v.DownwardAPI != nil:
		return out, f.downward(out, pod, v.DownwardAPI.Items, modeOf(v.DownwardAPI.DefaultMode))
	}
	mode := modeOf(v.Projected.DefaultMode)
	for i := range v.Projected.Sources {
		if err := f.source(ctx, out, pod, &v.Projected.Sources[i], mode); err != nil {
			return nil, fmt.Errorf("source %d: %w", i, err)
		}
	}
	return out, nil
}

func modeOf(mode *int32) os.FileMode {
	if mode == nil {
		return 0o644
	}
	return os.FileMode(*mode) & os.ModePerm
}

// source adds one source of a projected volume.
func (f *Folder) source(ctx context.Context, out payload, pod *v1.Pod, s *v1.VolumeProjection, mode os.FileMode) error {
	switch {
	case s.ConfigMap != nil:
		return f.configMap(out, pod.Namespace, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
	case s.Secret != nil:
		return f.secret(out, pod.Namespace, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode)
	case s.DownwardAPI != nil:
		return f.downward(out, pod, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		return f.token(ctx, out, pod, s.ServiceAccountToken, mode)
	}
	return errors.New("this kind of source is not supported")
}

func (f *Folder) configMap(out payload, namespace, name string, items []v1.KeyToPath, optional *bool, mode os.FileMode) error { //nolint:revive // the fields that two types of the API have in common
	m, err := f.conf.Objects.ConfigMap(namespace, name)
	if err != nil {
		return object.Unless(optional, err)
	}
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for k, text := range m.Data {
		data[k] = []byte(text)
	}
	for k, b := range m.BinaryData {
		data[k] = b
	}
	return out.keys(data, items, object.Ref{Kind: object.ConfigMap, Namespace: namespace, Name: name}, optional, mode)
}

func (f *Folder) secret(out payload, namespace, name string, items []v1.KeyToPath, optional *bool, mode os.FileMode) error { //nolint:revive // as configMap
	s, err := f.conf.Objects.Secret(namespace, name)
	if err != nil {
		return object.Unless(optional, err)
	}
	return out.keys(s.Data, items, object.Ref{Kind: object.Secret, Namespace: namespace, Name: name}, optional, mode)
}

// keys adds an object's data: all of it, or the keys that items name.
func (p payload) keys(data map[string][]byte, items []v1.KeyToPath, of object.Ref, optional *bool, mode os.FileMode) error {
	if len(items) == 0 {
		for k, b := range data {
			p.add(k, b, nil, mode)
		}
		return nil
	}
	for _, i := range items {
		b, has := data[i.Key]
		if !has {
			if err := object.Unless(optional, fmt.Errorf("key %s of %s %w", i.Key, of, object.ErrMissing)); err != nil {
				return err
			}
			continue
		}
		p.add(i.Path, b, i.Mode, mode)
	}
	return nil
}

func (f *Folder) downward(out payload, pod *v1.Pod, items []v1.DownwardAPIVolumeFile, mode os.FileMode) error {
	facts := downward.Facts{Pod: pod, Capacity: f.conf.Capacity}
	for i := range items {
		item := &items[i]
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = facts.FileField(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = facts.Resource(nil, item.ResourceFieldRef)
		default:
			err = errors.New("names neither a field nor a resource")
		}
		if err != nil {
			return fmt.Errorf("file %s: %w", item.Path, err)
		}
		out.add(item.Path, []byte(text), item.Mode, mode)
	}
	return nil
}

// token adds a token of the pod's service account. Where the pod says who may
// read its files, nobody else reads this one (kubelet's pkg/volume/projected).
func (f *Folder) token(ctx context.Context, out payload, pod *v1.Pod, s *v1.ServiceAccountTokenProjection, mode os.FileMode) error {
	if f.conf.Tokens == nil {
		return errors.New("a service account token needs an API server")
	}
	lifetime := time.Hour
	if s.ExpirationSeconds != nil {
		lifetime = time.Duration(*s.ExpirationSeconds) * time.Second
	}
	text, _, err := f.conf.Tokens.Token(ctx, pod, s.Audience, lifetime)
	if err != nil {
		return fmt.Errorf("token of service account %s: %w", cmp.Or(pod.Spec.ServiceAccountName, "default"), err)
	}
	user := onlyUser(pod)
	if user >= 0 || fsGroup(pod) >= 0 {
		mode = 0o600
	}
	out[s.Path] = file{[]byte(text), mode, user}
	return nil
}

// onlyUser is the user that all containers of a pod run as; -1 when they are
// not known to be one.
func onlyUser(pod *v1.Pod) int {
	of := func(c *v1.Container) int64 {
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			return *s.RunAsUser
		}
		if s := pod.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
			return *s.RunAsUser
		}
		return -1
	}
	user, first := int64(-1), true
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if u := of(&list[i]); first || u == user {
				user, first = u, false
				continue
			}
			return -1
		}
	}
	return int(user)
}
