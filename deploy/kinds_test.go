package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/api/net/v1alpha1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// installed is the shared cluster with all kinds.
func installed(t *testing.T) *kube.Cluster {
	t.Helper()
	c := kube.Shared(t)
	kinds.Install(t, c)
	return c
}

// typed are the kinds that api has types for, with their names for kubectl.
var typed = map[string]struct{ plural, short string }{
	"AddressLease":    {"addressleases", "al"},
	leaseOfAgents:     {"addressleases", "nal"},
	"IP":              {"ips", "ip"},
	"IPPool":          {"ippools", "ippool"},
	"NodeVFPolicy":    {"nodevfpolicies", "nvfp"},
	"PodNetwork":      {"podnetworks", "pnet"},
	"ProviderNetwork": {"provider-networks", "pn"},
	"QoSPolicy":       {"qos-policies", "qos"},
	"SecurityGroup":   {"security-groups", "sg"},
	"Subnet":          {"subnets", "subnet"},
	"Vip":             {"vips", "vip"},
	"Vlan":            {"vlans", "vlan"},
	"Vpc":             {"vpcs", "vpc"},
}

// leaseOfAgents is the AddressLease of net.fairlead.io, which has the name of another kind.
const leaseOfAgents = "AddressLease.net.fairlead.io"

// keyOf is a kind's key in typed.
func keyOf(kind, apiVersion string) string {
	if kind == "AddressLease" && apiVersion == v1alpha1.APIVersion {
		return leaseOfAgents
	}
	return kind
}

// TestNamesForKubectl: each kind is in category fairlead, under Kube-OVN's plural
// and short names.
func TestNamesForKubectl(t *testing.T) {
	t.Parallel()
	want := map[string][]string{} // kind: plural, short names, namespaced
	for kind, names := range typed {
		want[kind] = []string{names.plural, names.short, strconv.FormatBool(kind == "PodNetwork")}
	}
	for _, k := range v1.Later() {
		namespaced := "false"
		if k.Namespaced {
			namespaced = "true"
		}
		want[k.Kind] = []string{k.Plural, strings.Join(k.ShortNames, ","), namespaced}
	}
	got := map[string][]string{}
	c := installed(t)
	for line := range strings.Lines(c.Kubectl("api-resources", "--categories=fairlead", "--no-headers")) {
		f := strings.Fields(line)
		if len(f) == 4 { // no short names
			f = append(f[:1], append([]string{""}, f[1:]...)...)
		}
		require.Len(t, f, 5, line)
		got[keyOf(f[4], f[2])] = []string{f[0], f[1], f[3]}
	}
	require.Equal(t, want, got)
}

// documents are the objects of a file of testdata. Decoding each document by
// itself would lose YAML's anchors, so *condition is filled in first.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	text := string(b)
	if _, rest, ok := strings.Cut(text, "&condition "); ok {
		value := rest[:strings.Index(rest, "]")]
		text = strings.ReplaceAll(strings.ReplaceAll(text, "&condition ", ""), "*condition", value)
	}
	var out []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(o)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err, "%s after %d documents", file, len(out))
		out = append(out, o)
	}
}

// resource is the interface for an object's kind.
func resource(t *testing.T, c *kube.Cluster, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	gvr := schema.GroupVersionResource{Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().Version, Resource: typed[keyOf(o.GetKind(), o.GetAPIVersion())].plural}
	for _, k := range v1.Later() {
		if k.Kind == o.GetKind() {
			gvr = k.Resource()
		}
	}
	require.NotEmpty(t, gvr.Resource, o.GetKind())
	if o.GetNamespace() != "" {
		return c.Dynamic().Resource(gvr).Namespace(o.GetNamespace())
	}
	return c.Dynamic().Resource(gvr)
}

// store writes an object and its status and gives what the API server kept.
func store(t *testing.T, c *kube.Cluster, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	r := resource(t, c, o)
	made, err := r.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
	require.NoError(t, err)
	removeAfter(t, r, o.GetName())
	if status, ok := o.Object["status"]; ok && keyOf(o.GetKind(), o.GetAPIVersion()) != leaseOfAgents { // which is written as a whole
		made.Object["status"] = status
		_, err = r.UpdateStatus(t.Context(), made, metav1.UpdateOptions{FieldValidation: "Strict"})
		require.NoError(t, err)
	}
	kept, err := r.Get(t.Context(), o.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	return kept
}

// removeAfter lets a test be repeated in one cluster.
func removeAfter(t *testing.T, r dynamic.ResourceInterface, name string) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, r.Delete(context.Background(), name, metav1.DeleteOptions{})) })
}

func requireKept(t *testing.T, want, kept *unstructured.Unstructured) {
	t.Helper()
	for key, value := range want.Object {
		if key != "metadata" {
			require.Equal(t, value, kept.Object[key], "%s: %s", want.GetKind(), key)
		}
	}
	require.Equal(t, want.GetLabels(), kept.GetLabels())
}

// TestNothingIsLost stores one object of each kind with every field that it has.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	c := installed(t)
	full, later := documents(t, "testdata/full.yaml"), documents(t, "testdata/later.yaml")
	require.Len(t, full, len(typed)+3, "PodNetworks, leases and NodeVFPolicies are of two forms")
	require.Len(t, later, len(v1.Later()))
	for _, o := range append(full, later...) {
		requireKept(t, o, store(t, c, o))
	}
	for _, o := range full {
		requireColumns(t, c, o)
	}

	// Keys that nobody knows stay too, at every depth.
	for _, o := range append(full, later...) {
		if slices.Contains([]string{"AddressLease", "PodNetwork", "NodeVFPolicy"}, o.GetKind()) { // ours alone
			continue
		}
		o = o.DeepCopy()
		o.SetName("unknown")
		require.NoError(t, unstructured.SetNestedField(o.Object, []any{int64(1)}, "spec", "someNewKey"))
		require.NoError(t, unstructured.SetNestedField(o.Object, "x", "status", "someNewKey"))
		delete(o.Object["spec"].(map[string]any), "default")
		deepen(o.Object["spec"])
		requireKept(t, o, store(t, c, o))
	}
}

// requireColumns wants a value in each column that kubectl shows of an object
// with all fields.
func requireColumns(t *testing.T, c *kube.Cluster, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() == "PodNetwork" || slices.Contains([]string{"web.mac.0a0000000005", "rates"}, o.GetName()) {
		return // no form of the first, and one of the others' two, has a value in each
	}
	text, err := restClient(t, c, o.GroupVersionKind().GroupVersion()).Get().Resource(typed[keyOf(o.GetKind(), o.GetAPIVersion())].plural).Name(o.GetName()).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(text, &table))
	require.Len(t, table.Rows, 1)
	for n, column := range table.ColumnDefinitions {
		require.NotEmpty(t, fmt.Sprint(table.Rows[0].Cells[n]), "%s: column %s", o.GetKind(), column.Name)
		require.NotNil(t, table.Rows[0].Cells[n], "%s: column %s", o.GetKind(), column.Name)
	}
}

// deepen puts a key into every object of a list.
func deepen(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if !strings.HasSuffix(key, "elector") && !strings.HasSuffix(key, "electors") { // Kubernetes' own type
				deepen(value)
			}
		}
	case []any:
		for _, e := range v {
			if m, ok := e.(map[string]any); ok {
				m["someNewKey"] = map[string]any{"deep": true}
			}
			deepen(e)
		}
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, v1.AddToScheme(s))
	require.NoError(t, fairlead.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	return s
}

// TestTypesLoseNothing sends the same objects through our types, whose fields
// must all occur in them.
func TestTypesLoseNothing(t *testing.T) {
	t.Parallel()
	s := newScheme(t)
	strict := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, s, s, kjson.SerializerOptions{Strict: true})
	missing := map[string][]string{} // by kind, in all of its objects
	for _, o := range documents(t, "testdata/full.yaml") {
		text, err := o.MarshalJSON()
		require.NoError(t, err)
		read, _, err := strict.Decode(text, nil, nil)
		require.NoError(t, err, o.GetKind())
		var back strings.Builder
		require.NoError(t, strict.Encode(read.DeepCopyObject(), &back))
		require.JSONEq(t, string(text), back.String(), o.GetKind())
		out := absent(o.Object, reflect.TypeOf(read).Elem(), o.GetKind())
		kind := keyOf(o.GetKind(), o.GetAPIVersion())
		if before, ok := missing[kind]; ok {
			out = slices.DeleteFunc(out, func(s string) bool { return !slices.Contains(before, s) })
		}
		missing[kind] = out
	}
	for _, out := range missing {
		require.Empty(t, out, "fields without an example in testdata/full.yaml")
	}
}

// absent lists the JSON keys of a type that no value in v has.
func absent(v any, t reflect.Type, path string) (out []string) {
	switch {
	case t.Kind() == reflect.Pointer:
		return absent(v, t.Elem(), path)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		list, _ := v.([]any)
		merged := map[string]any{}
		for _, e := range list {
			for key, value := range e.(map[string]any) {
				merged[key] = value
			}
		}
		return absent(merged, t.Elem(), path+"[]")
	case t.Kind() != reflect.Struct || strings.HasPrefix(t.PkgPath(), "k8s.io/"):
		return nil
	}
	m, _ := v.(map[string]any)
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, ok := m[key]
		switch {
		case key == "-": // no object has it
		case key == "" && f.Anonymous:
			out = append(out, absent(v, f.Type, path)...)
		case !ok:
			out = append(out, path+"."+key)
		default:
			out = append(out, absent(value, f.Type, path+"."+key)...)
		}
	}
	return out
}

// restClient is a client for the types of one group.
func restClient(t *testing.T, c *kube.Cluster, gv schema.GroupVersion) *rest.RESTClient {
	t.Helper()
	cfg := c.Admin()
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	cfg.QPS = -1
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(newScheme(t)).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	require.NoError(t, err)
	return client
}

// TestTypedClient: our types are what client-go works with.
func TestTypedClient(t *testing.T) {
	t.Parallel()
	c := installed(t)
	client := restClient(t, c, v1.GroupVersion)
	vpc := &v1.Vpc{ObjectMeta: metav1.ObjectMeta{Name: "typed"}, Spec: v1.VpcSpec{Namespaces: []string{"a"}}}
	require.NoError(t, client.Post().Resource("vpcs").Body(vpc).Do(t.Context()).Into(vpc))
	require.NotEmpty(t, vpc.UID)
	removeAfter(t, c.Dynamic().Resource(v1.GroupVersion.WithResource("vpcs")), vpc.Name)
	var seen *v1.Vpc
	require.Eventually(t, func() bool { // a change of the definitions, by another test, ends every watch
		w, err := client.Get().Resource("vpcs").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "metadata.name=typed"}, metav1.ParameterCodec).Watch(t.Context())
		if err != nil {
			return false
		}
		defer w.Stop()
		seen, _ = (<-w.ResultChan()).Object.(*v1.Vpc)
		return seen != nil
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, []string{"a"}, seen.Spec.Namespaces)
	vpc.Status.Conditions = []v1.Condition{{Type: v1.ConditionNotImplemented, Status: "True", Message: "spec.enableBfd", ObservedGeneration: vpc.Generation}}
	require.NoError(t, client.Put().Resource("vpcs").Name("typed").SubResource("status").Body(vpc).Do(t.Context()).Error())
	var list v1.VpcList
	require.NoError(t, client.Get().Resource("vpcs").VersionedParams(&metav1.ListOptions{FieldSelector: "metadata.name=typed"}, metav1.ParameterCodec).Do(t.Context()).Into(&list))
	require.Len(t, list.Items, 1)
	require.Equal(t, vpc.Status.Conditions, list.Items[0].Status.Conditions)
}

// TestConditionOfLaterKinds: the condition is kept, and kubectl shows it.
func TestConditionOfLaterKinds(t *testing.T) {
	t.Parallel()
	c := installed(t)
	condition, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []v1.Condition{{Type: v1.ConditionNotImplemented, Status: "True", Reason: "Later", ObservedGeneration: 1}}}})
	require.NoError(t, err)
	for _, k := range v1.Later() {
		var r dynamic.ResourceInterface = c.Dynamic().Resource(k.Resource())
		if k.Namespaced {
			r = c.Dynamic().Resource(k.Resource()).Namespace("default")
		}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1.APIVersion, "kind": k.Kind, "metadata": map[string]any{"name": "told"}, "spec": map[string]any{}}}
		_, err := r.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err, k.Kind)
		removeAfter(t, r, "told")
		_, err = r.Patch(t.Context(), "told", "application/merge-patch+json", condition, metav1.PatchOptions{}, "status")
		require.NoError(t, err, k.Kind)
	}
	require.Regexp(t, `(?m)^NAME +NOTIMPLEMENTED +AGE\ntold +True `, c.Kubectl("get", "oeip", "told"))
	require.Regexp(t, `(?m)^NAME +NOTIMPLEMENTED +AGE\ntold +True `, c.Kubectl("get", "veg", "told"))
}

// TestALeaseIsMadeOnce: of many that claim an address at once, one has it.
func TestALeaseIsMadeOnce(t *testing.T) {
	t.Parallel()
	c := installed(t)
	const claimants = 16
	var claims sync.WaitGroup
	results := make([]error, claimants)
	for i := range claimants {
		client := restClient(t, c, fairlead.GroupVersion)
		claims.Go(func() { results[i] = claim(t.Context(), client, i) })
	}
	claims.Wait()
	won := -1
	for i, err := range results {
		if err == nil {
			require.Equal(t, -1, won, "two have the address")
			won = i
			continue
		}
		require.True(t, apierrors.IsAlreadyExists(err), err)
	}
	require.NotEqual(t, -1, won, "nobody has the address")
	removeAfter(t, c.Dynamic().Resource(fairlead.GroupVersion.WithResource("addressleases")), leased.name)
	var kept fairlead.AddressLease
	require.NoError(t, restClient(t, c, fairlead.GroupVersion).Get().Resource("addressleases").Name(leased.name).Do(t.Context()).Into(&kept))
	require.Equal(t, uid(won), kept.Spec.Owner.UID)

	// Who frees an address that has another owner by now frees nothing.
	gone := kept.UID
	lease := restClient(t, c, fairlead.GroupVersion).Delete().Resource("addressleases").Name(leased.name)
	require.NoError(t, lease.Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &gone}}).Do(t.Context()).Error())
	require.NoError(t, claim(t.Context(), restClient(t, c, fairlead.GroupVersion), claimants))
	err := lease.Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &gone}}).Do(t.Context()).Error()
	require.True(t, apierrors.IsConflict(err), err)
}
