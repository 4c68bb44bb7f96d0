// Package apply writes the objects of an installation to a Kubernetes API, with
// the rights of the user who installs: server-side apply, and deletion. It
// knows which kinds an installation has, not what they mean.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/lib/hint"
)

// manager owns the fields that we apply.
const manager = "fairlead-install"

// A definition's kind is served some time after it was applied.
const (
	pause   = 100 * time.Millisecond
	serving = 100 // pauses
)

// partOf is the label by which a CRD is known as ours: others install the same
// CRDs, and theirs stay as they are.
const partOf = "app.kubernetes.io/part-of"

// plurals are the kinds of an installation as they stand in paths.
var plurals = map[string]string{
	"CustomResourceDefinition":         "customresourcedefinitions",
	"ServiceAccount":                   "serviceaccounts",
	"Secret":                           "secrets",
	"ConfigMap":                        "configmaps",
	"ClusterRole":                      "clusterroles",
	"ClusterRoleBinding":               "clusterrolebindings",
	"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	"MutatingAdmissionPolicy":          "mutatingadmissionpolicies",
	"MutatingAdmissionPolicyBinding":   "mutatingadmissionpolicybindings",
	"Role":                             "roles",
	"RoleBinding":                      "rolebindings",
	"DaemonSet":                        "daemonsets",
	"Deployment":                       "deployments",
	"Subnet":                           "subnets",
}

// Outcome says what became of an object.
type Outcome string

// What becomes of an object.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Absent    Outcome = "not there"
	Foreign   Outcome = "left alone, another installation's"
)

// Options are about all requests of a Client.
type Options struct {
	Kubeconfig string // file; "" is what kubectl would take
	Context    string // "" is the file's current one

	DryRun bool // the server checks everything and keeps nothing
	Force  bool // take over fields that others own
}

// Client writes to one API server.
type Client struct {
	rest rest.Interface
	opts Options
}

// ErrNoCluster says that nothing names a cluster.
var ErrNoCluster = errors.New("no cluster is named")

// New makes a client with the credentials of a kubeconfig.
func New(o Options) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	over := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, over).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.APIPath = "/"
	cfg.QPS = -1 // one request after the other bounds itself; client-go's 5 a second are seconds for an installation
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return &Client{rest: c, opts: o}, nil
}

// Apply makes the object on the server as it is here. A CRD that another
// installation made is left alone. A Subnet that only shows what a controller serves is
// nobody's.
func (c *Client) Apply(ctx context.Context, o manifest.Object) (Outcome, error) {
	before, err := c.get(ctx, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("look at %s: %w", o, err)
	}
	if err == nil && foreign(o, before) {
		return Foreign, nil
	}
	body, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("apply %s: %w", o, err)
	}
	r := c.request(c.rest.Patch(types.ApplyPatchType), o).Param("fieldManager", manager).Body(body)
	if c.opts.Force || before != nil && before.shown() {
		r = r.Param("force", "true")
	}
	after, err := meta(c.settled(ctx, r))
	switch {
	case err != nil:
		return "", fmt.Errorf("apply %s: %w", o, err)
	case before == nil:
		return Created, nil
	case before.Metadata.ResourceVersion == after.Metadata.ResourceVersion:
		return Unchanged, nil
	}
	return Changed, nil
}

// settled repeats a request while the server does not serve the kind yet, whose
// definition was applied a moment ago.
func (c *Client) settled(ctx context.Context, r *rest.Request) (raw []byte, err error) {
	for range serving {
		raw, err = r.Do(ctx).Raw()
		if !apierrors.IsNotFound(err) {
			return raw, err
		}
		select {
		case <-ctx.Done():
			return raw, err
		case <-time.After(pause):
		}
	}
	return raw, err
}

// Delete removes the object; what depends on it goes with it. A CRD that
// another installation made is left alone.
func (c *Client) Delete(ctx context.Context, o manifest.Object) (Outcome, error) {
	before, err := c.get(ctx, o)
	switch {
	case apierrors.IsNotFound(err):
		return Absent, nil
	case err != nil:
		return "", fmt.Errorf("look at %s: %w", o, err)
	case foreign(o, before):
		return Foreign, nil
	}
	background := metav1.DeletePropagationBackground
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &before.Metadata.UID},
	})
	if err != nil {
		return "", fmt.Errorf("delete %s: %w", o, err)
	}
	err = c.request(c.rest.Delete(), o).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("delete %s: %w", o, err)
	}
	return Deleted, nil
}

// ApplyAll applies objects and says what became of each. It goes on past one that is
// refused: what else is wrong is told in the same run, and everything can be repeated.
func (c *Client) ApplyAll(ctx context.Context, w io.Writer, objects []manifest.Object) error {
	err := each(w, slices.Values(objects), func(o manifest.Object) (Outcome, error) { return c.Apply(ctx, o) })
	if IsConflict(err) {
		return hint.On(err, "another tool manages these fields: install with that one, or with --force-conflicts")
	}
	return err
}

// DeleteAll deletes objects, the last first, as ApplyAll applies them.
func (c *Client) DeleteAll(ctx context.Context, w io.Writer, objects []manifest.Object) error {
	backward := func(yield func(manifest.Object) bool) {
		slices.Backward(objects)(func(_ int, o manifest.Object) bool { return yield(o) })
	}
	return each(w, backward, func(o manifest.Object) (Outcome, error) { return c.Delete(ctx, o) })
}

func each(w io.Writer, objects iter.Seq[manifest.Object], do func(manifest.Object) (Outcome, error)) error {
	var errs []error
	for o := range objects {
		outcome, err := do(o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(w, "%s %s\n", o, outcome)
	}
	return errors.Join(errs...)
}

// IsConflict tells that another manager owns fields of the object.
func IsConflict(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), IsConflict)
	}
	return apierrors.IsConflict(err)
}

// kept is what is looked at of an object on the server.
type kept struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
}

// shown tells of a Subnet that it declares nothing.
func (k *kept) shown() bool {
	var spec v1.SubnetSpec
	return k.Metadata.Annotations[v1.AnnShown] != "" && json.Unmarshal(k.Spec, &spec) == nil && v1.Shown(k.Metadata.Annotations, spec)
}

func meta(raw []byte, err error) (*kept, error) {
	if err != nil {
		return nil, err
	}
	k := &kept{}
	return k, json.Unmarshal(raw, k)
}

// get is the object on the server; a read is never a dry run.
func (c *Client) get(ctx context.Context, o manifest.Object) (*kept, error) {
	p, err := pathOf(o)
	if err != nil {
		return nil, err
	}
	return meta(c.rest.Get().AbsPath(p...).Do(ctx).Raw())
}

func (c *Client) request(r *rest.Request, o manifest.Object) *rest.Request {
	p, _ := pathOf(o) // get has found it
	r = r.AbsPath(p...)
	if c.opts.DryRun {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	return r
}

func foreign(o manifest.Object, before *kept) bool {
	return o.Kind() == "CustomResourceDefinition" && before.Metadata.Labels[partOf] != "fairlead"
}

var errKind = errors.New("a kind that installations do not have")

// pathOf is where the object stands.
func pathOf(o manifest.Object) ([]string, error) {
	plural, ok := plurals[o.Kind()]
	if !ok {
		return nil, fmt.Errorf("%s: %w", o, errKind)
	}
	root := []string{"/apis", o.APIVersion()}
	if o.APIVersion() == "v1" {
		root = []string{"/api", "v1"}
	}
	if ns := o.Namespace(); ns != "" {
		root = append(root, "namespaces", ns)
	}
	return append(root, plural, o.Name()), nil
}

// Cluster is what there is that an installation's networks must agree with. What the
// server does not have is not there; what it refuses to tell is an error.
func (c *Client) Cluster(ctx context.Context) (manifest.Cluster, error) {
	out := manifest.Cluster{Nodes: map[string][]netip.Addr{}, Subnets: map[string][]netip.Prefix{}, Builtin: true}
	err := errors.Join(
		c.each(ctx, "/api/v1/nodes", func(o listed) { out.Nodes[o.Metadata.Name] = o.internal() }),
		c.each(ctx, "/apis/networking.k8s.io/v1/servicecidrs", func(o listed) {
			for _, text := range o.Spec.CIDRs {
				out.Services = append(out.Services, prefixes(text)...)
			}
		}),
		c.each(ctx, "/apis/kubeovn.io/v1/subnets", func(o listed) {
			if v1.Shown(o.Metadata.Annotations, o.Spec.SubnetSpec) {
				return // the values are about it
			}
			out.Builtin = out.Builtin && !o.Spec.Default && o.Metadata.Name != v1.DefaultSubnet
			if o.Spec.Vpc == "" || o.Spec.Vpc == v1.DefaultVpc {
				out.Subnets[o.Metadata.Name] = prefixes(o.Spec.CIDRBlock)
			}
		}),
	)
	return out, err
}

// listed is what is looked at of nodes, networks of Services and Subnets.
type listed struct {
	kept
	Spec struct {
		v1.SubnetSpec
		CIDRs []string `json:"cidrs"`
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// internal are a node's InternalIPs.
func (o listed) internal() (out []netip.Addr) {
	for _, a := range o.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == "InternalIP" {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// prefixes are the networks of a list with commas; what is none is nobody's network.
func prefixes(text string) (out []netip.Prefix) {
	for part := range strings.SplitSeq(text, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(part)); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// each calls use for all objects at a path, page by page; a kind that the server
// does not have has none.
func (c *Client) each(ctx context.Context, at string, use func(listed)) error {
	for next := ""; ; {
		raw, err := c.rest.Get().AbsPath(at).Param("limit", "500").Param("continue", next).Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			return nil
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []listed        `json:"items"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil {
			return fmt.Errorf("look at %s: %w", path.Base(at), err)
		}
		for _, o := range page.Items {
			use(o)
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}
