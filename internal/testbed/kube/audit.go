package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Verbs of requests, for Filter.Verbs.
var (
	Reads  = []string{"get", "list", "watch"}
	Writes = []string{"create", "update", "patch", "delete", "deletecollection"}
)

// Request is one request as the API server saw it arrive, from its audit log.
type Request struct {
	User      string // "system:node:node1", "system:serviceaccount:kube-system:fairlead"
	UserAgent string
	Verb      string // get list watch create update patch delete deletecollection; an HTTP method in small letters outside the API
	Group     string // "" for the core group
	Resource  string // plural, "pods"; "" outside the API
	// Subresource is "status", "binding", ... or "".
	Subresource string
	Namespace   string
	Name        string // "" for list, watch and create
	URI         string // path and query
	Time        time.Time
}

// Filter chooses requests; an empty field chooses all.
type Filter struct {
	User string
	// UserAgent is a prefix: "fairlead/".
	UserAgent string
	Verbs     []string
	// Resource is the plural, with a subresource if that alone is meant:
	// "pods" is also "pods/status".
	Resource  string
	Namespace string
	Name      string
	// Since leaves out what came before Cluster.Mark.
	Since Mark
}

// Mark is a point in the history of a cluster's requests.
type Mark int64

func (f Filter) match(r Request) bool {
	resource := r.Resource
	if strings.Contains(f.Resource, "/") {
		resource += "/" + r.Subresource
	}
	return (f.User == "" || f.User == r.User) &&
		strings.HasPrefix(r.UserAgent, f.UserAgent) &&
		(len(f.Verbs) == 0 || slices.Contains(f.Verbs, r.Verb)) &&
		(f.Resource == "" || f.Resource == resource) &&
		(f.Namespace == "" || f.Namespace == r.Namespace) &&
		(f.Name == "" || f.Name == r.Name)
}

// event is what is read of an audit.k8s.io/v1 Event.
type event struct {
	Stage      string    `json:"stage"`
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	Time       time.Time `json:"requestReceivedTimestamp"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

// requests reads the audit log. The server writes a line for each request
// before it works on it (stage RequestReceived, blocking mode): a request that
// was answered is in the log.
func (s *server) requests(f Filter) ([]Request, error) {
	log, err := os.Open(s.path("audit.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if _, err := log.Seek(int64(f.Since), io.SeekStart); err != nil {
		return nil, err
	}
	var out []Request
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // the end; what has no line end yet is being written
			return out, nil
		}
		var e event
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, err
		}
		if r := e.request(); e.Stage == "RequestReceived" && f.match(r) {
			out = append(out, r)
		}
	}
}

func (e event) request() Request {
	return Request{User: e.User.Username, UserAgent: e.UserAgent, Verb: e.Verb, Group: e.Object.APIGroup, Resource: e.Object.Resource,
		Subresource: e.Object.Subresource, Namespace: e.Object.Namespace, Name: e.Object.Name, URI: e.RequestURI, Time: e.Time}
}

// mark is the end of the last whole line.
func (s *server) mark() (Mark, error) {
	b, err := os.ReadFile(s.path("audit.log"))
	return Mark(bytes.LastIndexByte(b, '\n') + 1), err
}
