package env

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/node/downward"
	"github.com/fairlead/fairlead/internal/node/object"
)

func TestExpand(t *testing.T) {
	v := &Variables{}
	v.set("A", "1")
	v.set("B", "$(A)")
	for text, want := range map[string]string{
		"": "", "$(A)": "1", "x$(A)y": "x1y", "$$(A)": "$(A)", "$(C)": "$(C)", "$(B)": "$(A)", "$": "$", "$(A": "$(A", "a)b": "a)b", "$$": "$",
	} {
		require.Equal(t, want, v.Expand(text), text)
	}
	text, err := v.MustExpand("x/$(A)/$$(C)")
	require.NoError(t, err)
	require.Equal(t, "x/1/$(C)", text)
	_, err = v.MustExpand("$(A)/$(C)/$(D)")
	require.EqualError(t, err, "$(A)/$(C)/$(D): variable C, D is not set")
}

const objects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: one, b.c: two}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: secret}}
`

func TestVariables(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "o.yaml"), []byte(objects), 0o600))
	store := object.NewFolder(dir, slog.New(slog.DiscardHandler))
	for name, c := range map[string]struct{ spec, want, fail string }{
		"in order":           {"{env: [{name: B, value: x}, {name: A, value: $(B)y}, {name: B, value: $(A)z}]}", "B=xyz A=xy", ""},
		"not yet known":      {"{env: [{name: A, value: $(B)}, {name: B, value: x}]}", "A=$(B) B=x", ""},
		"all of a map":       {"{envFrom: [{configMapRef: {name: m}}]}", "a=one b.c=two", ""},
		"with a prefix":      {"{envFrom: [{prefix: P_, secretRef: {name: s}}]}", "P_a=secret", ""},
		"later ones win":     {"{envFrom: [{configMapRef: {name: m}}, {secretRef: {name: s}}], env: [{name: b.c, value: $(a)}]}", "a=secret b.c=secret", ""},
		"a key":              {"{env: [{name: K, valueFrom: {configMapKeyRef: {name: m, key: b.c}}}, {name: S, valueFrom: {secretKeyRef: {name: s, key: a}}}]}", "K=two S=secret", ""},
		"optional":           {"{envFrom: [{configMapRef: {name: none, optional: true}}, {secretRef: {name: none, optional: true}}], env: [{name: K, valueFrom: {configMapKeyRef: {name: m, key: none, optional: true}}}, {name: S, valueFrom: {secretKeyRef: {name: none, key: a, optional: true}}}]}", "", ""},
		"no such map":        {"{envFrom: [{configMapRef: {name: m}}, {configMapRef: {name: none}}]}", "", "envFrom[1]: configmap default/none is not there"},
		"no such secret":     {"{env: [{name: K, valueFrom: {secretKeyRef: {name: none, key: a}}}]}", "", "variable K: secret default/none is not there"},
		"no such key":        {"{env: [{name: K, valueFrom: {secretKeyRef: {name: s, key: none}}}]}", "", "variable K: key none of secret s is not there"},
		"the pod's":          {"{env: [{name: K, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]}", "K=web IP=10.0.0.5,fd00::5", ""},
		"its resources":      {"{resources: {limits: {cpu: 2}}, env: [{name: K, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}", "K=2", ""},
		"what is not known":  {"{env: [{name: K, valueFrom: {fieldRef: {fieldPath: spec.x}}}]}", "", "variable K: field spec.x is not supported"},
		"an unknown kind":    {"{env: [{name: K, valueFrom: {}}]}", "", "variable K: this kind of source is not supported"},
		"of nothing":         {"{envFrom: [{prefix: x}]}", "", "envFrom[0]: this kind of source is not supported"},
		"refs are not again": {"{envFrom: [{configMapRef: {name: m}}], env: [{name: X, value: $$(a)}]}", "a=one b.c=two X=$(a)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, spec := &v1.Pod{}, &v1.Container{}
			p.Namespace, p.Name = "default", "web"
			require.NoError(t, yaml.UnmarshalStrict([]byte(c.spec), spec))
			v, err := Of(&downward.Facts{Pod: p, PodIPs: []string{"10.0.0.5", "fd00::5"}}, spec, store)
			if c.fail != "" {
				require.ErrorContains(t, err, c.fail)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, kv := range v.List() {
				got = append(got, kv.GetKey()+"="+string(kv.GetValue()))
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
	require.Equal(t, "1 $(S)", Fixed(&v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "S", ValueFrom: &v1.EnvVarSource{}}}}).Expand("$(A) $(S)"))
}
