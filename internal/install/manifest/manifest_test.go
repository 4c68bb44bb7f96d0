package manifest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
)

func render(t *testing.T, values string) []Object {
	t.Helper()
	v, err := Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Merge([]byte(values)))
	out, err := Render(v)
	require.NoError(t, err)
	return out
}

func TestObjectsComeInOrder(t *testing.T) {
	var kinds []string
	for _, o := range render(t, "") {
		kinds = append(kinds, o.Kind())
	}
	require.Equal(t, []string{
		"ServiceAccount", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "DaemonSet",
	}, slices.Compact(kinds))
	crds, err := CRDs(Values{})
	require.NoError(t, err)
	require.Len(t, crds, 7)
}

// TestOVN: one value gives the controller and what it may do, and tells the agents.
func TestOVN(t *testing.T) {
	told := func(values string) (objects []string, agents bool) {
		for _, o := range render(t, values) {
			if o.Name() == "fairlead-controller" {
				objects = append(objects, o.Kind())
			}
			b, err := YAML([]Object{o})
			require.NoError(t, err)
			agents = agents || o.Kind() == "DaemonSet" && strings.Contains(string(b), "\n        - --ovn\n")
		}
		return objects, agents
	}
	objects, agents := told("")
	require.Empty(t, objects)
	require.False(t, agents)
	objects, agents = told("ovn: {enabled: true, nb: 'tcp:10.0.0.1:6641'}")
	require.Equal(t, []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"}, objects)
	require.True(t, agents)
}

// TestLaterKindsAreTold: the controller may read each kind that nobody carries out, and
// tell its objects so.
func TestLaterKindsAreTold(t *testing.T) {
	var role struct {
		Rules []struct{ APIGroups, Resources, Verbs []string }
	}
	for _, o := range render(t, "ovn: {enabled: true, nb: 'tcp:10.0.0.1:6641'}") {
		if o.Name() == "fairlead-controller" && o.Kind() == "ClusterRole" {
			b, err := json.Marshal(o)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &role))
		}
	}
	may := map[string][]string{}
	for _, r := range role.Rules {
		for _, what := range r.Resources {
			if slices.Equal(r.APIGroups, []string{v1.GroupVersion.Group}) {
				may[what] = append(may[what], r.Verbs...)
			}
		}
	}
	for _, k := range append(v1.Later(), v1.LaterKind{Plural: "provider-networks"}) {
		require.Equal(t, []string{"list", "watch"}, may[k.Plural], k.Plural)
		require.Equal(t, []string{"patch"}, may[k.Plural+"/status"], k.Plural)
	}
}

func TestNamespaceOfAllObjects(t *testing.T) {
	for _, o := range render(t, "{namespace: elsewhere, ovn: {enabled: true}}") {
		if ns := o.Namespace(); o.Name() == "fairlead-gateways" { // about ConfigMaps that are where Kube-OVN's are
			require.Equal(t, "kube-system", ns, o)
		} else if ns != "" {
			require.Equal(t, "elsewhere", ns, o)
		}
	}
}

func TestValuesThatAreNone(t *testing.T) {
	for expr, want := range map[string]string{
		"image":              `value "image" is not KEY=VALUE`,
		"=3":                 `value "=3" is not KEY=VALUE`,
		"image.tg=3":         "there is no value image.tg",
		"nonsense=3":         "there is no value nonsense",
		"image=3":            "value image has keys, it cannot be 3",
		"image=null":         "value image has keys, it cannot be <nil>",
		"image.tag={":        "value of image.tag:",
		"policies.agent.x=1": "there is no value policies.agent.x",
	} {
		v, err := Defaults()
		require.NoError(t, err)
		require.ErrorContains(t, v.Set(expr), want)
	}
}

func TestValuesOfTheUsersOwnKeys(t *testing.T) {
	v, err := Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("flags.mtu=9000"))
	require.NoError(t, v.Set(`nodeSelector.kubernetes\.io/os=null`))
	require.NoError(t, v.Set("resources.limits.cpu=2"))
	require.NoError(t, v.Set("tolerations=[]"))
	require.Equal(t, map[string]any{}, v["nodeSelector"])
	require.Empty(t, v["tolerations"])
	require.Contains(t, v["flags"], "mtu")
	require.Error(t, v.Merge([]byte("image: {tag: a}\nimage: {tag: b}")), "a key twice")
}

// TestRequestFieldsAreTheAnnotations proves that the policies know every field
// that api/v1 has: a new annotation is classified here, or it fails.
func TestRequestFieldsAreTheAnnotations(t *testing.T) {
	var asked []string
	for _, o := range render(t, "") {
		if o.Name() != "fairlead-requests-fixed" || o.Kind() != "ValidatingAdmissionPolicy" {
			continue
		}
		b, err := YAML([]Object{o})
		require.NoError(t, err)
		list := regexp.MustCompile(`kubernetes\\.io/\(([a-z_|]+)\)`).FindStringSubmatch(string(b))
		require.NotNil(t, list)
		asked = strings.Split(list[1], "|")
	}
	// A virtual machine's name counts on a pod alone that the machine has made.
	harmless := []string{"mirror", "pod_nic_type", "default_route", "ip_family", "virtualmachine"}
	for _, field := range Fields(t) {
		require.True(t, slices.Contains(asked, field) || slices.Contains(harmless, field),
			"annotation %s: is it a tenant's request (_helpers.tpl, requestFields), or harmless (here)?", field)
	}
}

// Fields are the values of api/v1's constants Field….
func Fields(t *testing.T) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1/annotations.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, "Field") {
			return true
		}
		s, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		out = append(out, s)
		return true
	})
	require.NotEmpty(t, out)
	return out
}

// TestNothingElseOfStatus: the policies name each field that a status has, but conditions.
func TestNothingElseOfStatus(t *testing.T) {
	var text string
	for _, o := range render(t, "") {
		if strings.HasPrefix(o.Name(), "fairlead-agent") && o.Kind() == "ValidatingAdmissionPolicy" {
			b, err := YAML([]Object{o})
			require.NoError(t, err)
			text += string(b)
		}
	}
	for _, of := range []any{corev1.PodStatus{}, corev1.NodeStatus{}} {
		for field := range reflect.TypeOf(of).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "conditions" {
				require.Regexp(t, `status\.`+name+`\s+==\s+oldObject\.\?status\.`+name+`\b`, text)
			}
		}
	}
}
