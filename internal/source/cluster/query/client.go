// Package query answers an operator's questions from the Kubernetes API, with
// the rights of whoever asks: pods and their networks, NetworkAttachmentDefinitions,
// Subnets, addresses. It asks once and page by page, keeps nothing and watches
// nothing; of objects it reads the few fields that are shown. What it says of a
// pod's networks is what the annotation network-status says. It changes nothing
// but by Remove, and knows neither flags nor the agent.
package query

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kjson "sigs.k8s.io/json"
)

const (
	// pageSize is how many objects are asked for at a time: 500 pods are some
	// 5 MB, and no more than that is in memory at once.
	pageSize = 500
	// dialLimit is how long a connection may take to be made.
	dialLimit = 5 * time.Second
	// Requests per second: a list of 10,000 pods is 20.
	qps, burst = 50, 100
)

// Options say which API server is asked, and as whom.
type Options struct {
	// Files are kubeconfigs, merged as kubectl does. One alone must be there; of
	// several some may be missing.
	Files     []string
	Context   string // "" is the files' current one
	UserAgent string
	// Note hears, in a sentence, what an answer lacks because the user may not
	// see it. nil: nobody wants to know.
	Note func(string)
}

// Client asks one API server. It is not for concurrent use.
type Client struct {
	rest      rest.Interface
	config    *rest.Config
	host      string
	namespace string
	note      func(string)
}

// New makes a client; nothing is asked yet. ErrNoCluster: the files name none.
func New(o Options) (*Client, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: o.Files}
	if len(o.Files) == 1 {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Files[0]}
	}
	files, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	// Not the deferred form, which would fall back to the pod that we run in:
	// its rights are not the user's.
	chosen := clientcmd.NewNonInteractiveClientConfig(*files, o.Context, &clientcmd.ConfigOverrides{}, rules)
	cfg, err := chosen.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	namespace, _, err := chosen.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c := &Client{config: cfg, host: cfg.Host, namespace: namespace, note: o.Note}
	if c.note == nil {
		c.note = func(string) {}
	}
	cfg.UserAgent, cfg.QPS, cfg.Burst, cfg.WarningHandler = o.UserAgent, qps, burst, rest.NoWarnings{}
	cfg.Dial = (&net.Dialer{Timeout: dialLimit, KeepAlive: 30 * time.Second}).DialContext
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status, in which the server refuses
	cfg.GroupVersion, cfg.APIPath = &schema.GroupVersion{}, "/"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if c.rest, err = rest.RESTClientFor(cfg); err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return c, nil
}

// Namespace is the context's, "default" where it has none.
func (c *Client) Namespace() string { return c.namespace }

// Config says how the API server is reached, and as whom.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Scope is where to look.
type Scope struct {
	Namespace string // "" is all
	Name      string // "" is all
	Labels    string // label selector, "" is all
}

// Kind is a resource of the API.
type Kind struct {
	group, version, plural string
	cluster                bool // it stands in no namespace
}

// Kinds that are read.
var (
	pods    = Kind{"", "v1", "pods", false}
	nads    = Kind{"k8s.cni.cncf.io", "v1", "network-attachment-definitions", false}
	subnets = Kind{"kubeovn.io", "v1", "subnets", true}
	vlans   = Kind{"kubeovn.io", "v1", "vlans", true}
	events  = Kind{"events.k8s.io", "v1", "events", false}
)

// String is the resource as RBAC and kubectl write it.
func (k Kind) String() string {
	if k.group == "" {
		return k.plural
	}
	return k.plural + "." + k.group
}

func (k Kind) path(namespace string) []string {
	p := []string{"/apis", k.group, k.version}
	if k.group == "" {
		p = []string{"/api", k.version}
	}
	if namespace != "" {
		p = append(p, "namespaces", namespace)
	}
	return append(p, k.plural)
}

// question is a list of objects of a kind.
type question struct {
	Kind
	Scope
	fields string // field selector
	// heads leaves out all but the metadata.
	heads bool
}

// heads is the form in which the server sends metadata alone.
const heads = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// each calls use for all objects that q names, in the order of namespace and
// name. The server keeps a list's state for minutes, longer than a command may
// take: no page comes too late.
func each[T any](ctx context.Context, c *Client, q question, use func(T)) error {
	for next := ""; ; {
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := c.page(ctx, q, next, &page); err != nil {
			return c.explain(err, "list", q.Kind, q.Namespace)
		}
		for _, item := range page.Items {
			use(item)
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

func (c *Client) page(ctx context.Context, q question, next string, to any) error {
	if err := segments(q.Namespace, q.Name); err != nil {
		return err
	}
	r := c.rest.Get().AbsPath(q.path(q.Namespace)...).Param("limit", strconv.Itoa(pageSize))
	if next != "" {
		r = r.Param("continue", next)
	}
	if q.Name != "" {
		q.fields = "metadata.name=" + q.Name
	}
	if q.fields != "" {
		r = r.Param("fieldSelector", q.fields)
	}
	if q.Labels != "" {
		r = r.Param("labelSelector", q.Labels)
	}
	if q.heads {
		r = r.SetHeader("Accept", heads)
	}
	return read(ctx, r, to)
}

// segments refuses names that would lead to another path.
func segments(names ...string) error {
	for _, name := range names {
		if faults := content.IsPathSegmentName(name); len(faults) > 0 {
			return fmt.Errorf("%q is not a name: it %s", name, strings.Join(faults, ", "))
		}
	}
	return nil
}

func read(ctx context.Context, r *rest.Request, to any) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	raw, err := result.Raw()
	if err != nil {
		return err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, to); err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	return nil
}

// lacking turns the refusal of something that an answer can do without into a
// note; what else failed stays an error.
func (c *Client) lacking(err error, what string) (known bool, other error) {
	denied := (*DeniedError)(nil)
	if errors.As(err, &denied) {
		c.note(what + ": " + denied.missing() + " is missing")
		return false, nil
	}
	return err == nil, err
}
