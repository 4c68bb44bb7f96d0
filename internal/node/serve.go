package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/logs"
	"github.com/fairlead/fairlead/internal/node/podruntime"
)

// Handler serves all that there is, for who may do everything on this machine:
// what Public serves, and
//
//	POST /exec/NAMESPACE/POD/CONTAINER?command=ls&command=-l&input=1&output=1&error=1&tty=1
//
// which becomes a stream to the runtime (SPDY or WebSocket), as kubelet's does.
func (n *Node) Handler() http.Handler {
	m := n.public()
	m.HandleFunc("/exec/{namespace}/{pod}/{container}", n.serveExec)
	return m
}

// Public serves, for reading alone; a pod's name may leave out the node's:
//
//	GET /pods                     a v1.PodList of all pods with their status, as kubelet's
//	GET /pods/NAMESPACE/POD       what the loop knows of one pod, an agent.PodRun
//	GET /containerLogs/NAMESPACE/POD/CONTAINER   its output, as kubelet's: follow, tailLines,
//	                              sinceSeconds, sinceTime, timestamps, previous
//	GET /livez                    200 once the runtime has answered
func (n *Node) Public() http.Handler { return n.public() }

func (n *Node) public() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /pods", n.servePods)
	m.HandleFunc("GET /pods/{namespace}/{pod}", n.serveRun)
	m.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	m.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if n.pleg.Listed().IsZero() {
			http.Error(w, "the runtime has not answered yet", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	return m
}

func (n *Node) servePods(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
	for _, p := range n.Pods() {
		list.Items = append(list.Items, *p)
	}
	n.answer(w, list)
}

func (n *Node) answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(what); err != nil {
		n.conf.Log.Debug("a client went before it had its answer", "err", err)
	}
}

// named finds the worker of a pod that a request names; of several it is the
// youngest. Static pods are found without the node's name at the end of theirs
// too. Node.mu is held.
func (n *Node) named(r *http.Request) *worker {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	var out *worker
	for _, w := range n.workers {
		if w.pod == nil || w.name.Namespace != namespace {
			continue
		}
		is := w.name.Name == name || static(w.pod) && w.name.Name == name+"-"+w.pod.Spec.NodeName
		if is && (out == nil || out.turn < w.turn) {
			out = w
		}
	}
	return out
}

// containerOf finds the container that a request names, with the runtime. It
// has answered the request when there is none.
func (n *Node) containerOf(w http.ResponseWriter, r *http.Request, previous bool) *podruntime.Container {
	name := r.PathValue("container")
	n.mu.Lock()
	found := n.named(r)
	var pod *v1.Pod
	if found != nil {
		pod = found.pod
	}
	n.mu.Unlock()
	if pod == nil {
		http.Error(w, "there is no pod "+r.PathValue("namespace")+"/"+r.PathValue("pod")+" on this node", http.StatusNotFound)
		return nil
	}
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	if !slices.ContainsFunc(all, func(c v1.Container) bool { return c.Name == name }) {
		http.Error(w, "pod "+pod.Name+" has no container "+name, http.StatusNotFound)
		return nil
	}
	st, err := n.conf.Runtime.Status(r.Context(), pod.UID)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return nil
	}
	c := st.Instance(name, previous)
	switch {
	case c == nil && previous:
		http.Error(w, "container "+name+" of pod "+pod.Name+" was not started before", http.StatusConflict)
	case c == nil:
		http.Error(w, "container "+name+" of pod "+pod.Name+" has not been started yet", http.StatusConflict)
	}
	return c
}

func (n *Node) serveLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	o, err := logOptions(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := n.containerOf(w, r, truth(q.Get("previous")))
	if c == nil {
		return
	}
	if truth(q.Get("follow")) {
		o.Follow = func() bool { return n.runs(r.Context(), c) }
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &flushed{w: w, to: http.NewResponseController(w)}
	err = logs.Read(r.Context(), c.LogFile(), o, out)
	switch {
	case errors.Is(err, os.ErrNotExist) && !out.begun:
		http.Error(w, "container "+c.Name+" has no log: it was not started, or its log is gone", http.StatusConflict)
	case err != nil && r.Context().Err() == nil:
		n.conf.Log.Warn("a log was not read to its end", "container", c.ID, "err", err)
	}
}

// runs tells that more may come from a container. As long as the runtime does
// not answer, it may.
func (n *Node) runs(ctx context.Context, c *podruntime.Container) bool {
	alive, err := n.conf.Runtime.Runs(ctx, c.ID)
	return err != nil || alive
}

// flushed sends each line at once.
type flushed struct {
	w     io.Writer
	to    *http.ResponseController
	begun bool
}

func (f *flushed) Write(p []byte) (int, error) {
	f.begun = true
	out, err := f.w.Write(p)
	if err == nil {
		err = f.to.Flush()
	}
	return out, err
}

// logOptions reads kubelet's parameters.
func logOptions(q url.Values) (logs.Options, error) {
	o := logs.Options{Tail: -1, Timestamps: truth(q.Get("timestamps"))}
	var err error
	if s := q.Get("tailLines"); s != "" {
		if o.Tail, err = strconv.Atoi(s); err != nil || o.Tail < 0 {
			return o, errors.New("tailLines is no number of lines")
		}
	}
	if s := q.Get("sinceSeconds"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 32)
		if err != nil || seconds < 0 {
			return o, errors.New("sinceSeconds is no number of seconds")
		}
		o.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if s := q.Get("sinceTime"); s != "" {
		if o.Since, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return o, errors.New("sinceTime is no time of RFC 3339")
		}
	}
	return o, nil
}

// truth reads a parameter as kubelet and its clients write them.
func truth(s string) bool { return s == "1" || s == "true" }

// serveExec hands the connection to the runtime's own server.
func (n *Node) serveExec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c := n.containerOf(w, r, false)
	if c == nil {
		return
	}
	tty := truth(q.Get("tty"))
	at, err := n.conf.Runtime.Stream(r.Context(), &cri.ExecRequest{
		ContainerId: c.ID, Cmd: q["command"], Tty: tty,
		Stdin: truth(q.Get("input")), Stdout: truth(q.Get("output")), Stderr: truth(q.Get("error")) && !tty,
	})
	var target *url.URL
	if err == nil {
		target, err = url.Parse(at)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, target.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the runtime's streaming server: "+err.Error(), http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}
