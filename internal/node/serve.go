package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
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
	m.HandleFunc("/exec/{namespace}/{pod}/{container}", front{n, true}.serveExec)
	return m
}

// Kubelet serves what an API server asks of a node, with kubelet's paths and
// parameters; it does not ask who asks. Pods have their full names here: an API
// server has decided on a right by that name.
//
//	GET /pods, GET /healthz
//	GET /containerLogs/NAMESPACE/POD/CONTAINER
//	/exec/NAMESPACE/POD/CONTAINER, /attach/NAMESPACE/POD/CONTAINER, /portForward/NAMESPACE/POD
func (n *Node) Kubelet() http.Handler {
	f, m := front{n, false}, http.NewServeMux()
	m.HandleFunc("GET /pods", n.servePods)
	m.HandleFunc("GET /healthz", n.serveHealth)
	m.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", f.serveLogs)
	m.HandleFunc("/exec/{namespace}/{pod}/{container}", f.serveExec)
	m.HandleFunc("/attach/{namespace}/{pod}/{container}", f.serveAttach)
	m.HandleFunc("/portForward/{namespace}/{pod}", f.servePortForward)
	return m
}

// Public serves, for reading alone; a pod's name may leave out the node's:
//
//	GET /pods                     a v1.PodList of all pods with their status, as kubelet's
//	GET /pods/NAMESPACE/POD       what the loop knows of one pod, an agent.PodRun
//	GET /containerLogs/NAMESPACE/POD/CONTAINER   its output, as kubelet's: follow, tailLines,
//	                              sinceSeconds, sinceTime, timestamps, previous
//	GET /livez                    200 while the runtime lists its containers; 503, with the reason,
//	                              before it first has and when it has not for 3 minutes
func (n *Node) Public() http.Handler { return n.public() }

func (n *Node) public() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /pods", n.servePods)
	m.HandleFunc("GET /pods/{namespace}/{pod}", n.serveRun)
	m.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", front{n, true}.serveLogs)
	m.HandleFunc("GET /livez", n.serveHealth)
	return m
}

func (n *Node) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if err := n.pleg.Stale(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok") // who asked may have gone
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

// named finds the worker of a pod that a request names, maybe without the
// node's name at the end of a static pod's. Node.mu is held.
func (n *Node) named(r *http.Request) *worker { return front{n, true}.named(r) }

// front is one of the ways in.
type front struct {
	*Node
	short bool // a static pod's name may leave out the node's
}

// named finds the worker of a pod that a request names; of several it is the
// youngest, and one whose name it is goes before one of which it is the short
// name. Node.mu is held.
func (f front) named(r *http.Request) *worker {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	var exact, short *worker
	for _, w := range f.workers {
		if w.pod == nil || w.name.Namespace != namespace {
			continue
		}
		switch {
		case w.name.Name == name && (exact == nil || exact.turn < w.turn):
			exact = w
		case f.short && static(w.pod) && w.name.Name == name+"-"+w.pod.Spec.NodeName && (short == nil || short.turn < w.turn):
			short = w
		}
	}
	return cmp.Or(exact, short)
}

// podOf finds the pod that a request names, with what the runtime has of it. It
// has answered the request when there is none.
func (f front) podOf(w http.ResponseWriter, r *http.Request) (*v1.Pod, *podruntime.Status) {
	f.mu.Lock()
	var pod *v1.Pod
	if found := f.named(r); found != nil {
		pod = found.pod
	}
	f.mu.Unlock()
	if pod == nil {
		http.Error(w, "there is no pod "+r.PathValue("namespace")+"/"+r.PathValue("pod")+" on this node", http.StatusNotFound)
		return nil, nil
	}
	st, err := f.conf.Runtime.Status(r.Context(), pod.UID)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return nil, nil
	}
	return pod, st
}

// containerOf finds the container that a request names, as its pod wants it and
// as the runtime has it. It has answered the request when there is none.
func (f front) containerOf(w http.ResponseWriter, r *http.Request, previous bool) (*v1.Container, *podruntime.Container) {
	pod, st := f.podOf(w, r)
	if pod == nil {
		return nil, nil
	}
	name := r.PathValue("container")
	spec := podruntime.Named(pod, name)
	if spec == nil {
		http.Error(w, "pod "+pod.Name+" has no container "+name, http.StatusNotFound)
		return nil, nil
	}
	c := st.Instance(name, previous)
	if c == nil {
		why := " has not been started yet"
		if previous {
			why = " was not started before"
		}
		// An API server passes on only this status with its text.
		http.Error(w, "container "+name+" of pod "+pod.Name+why, http.StatusBadRequest)
		return nil, nil
	}
	return spec, c
}

func (f front) serveLogs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	o, err := logOptions(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, c := f.containerOf(w, r, truth(q.Get("previous")))
	if c == nil {
		return
	}
	if truth(q.Get("follow")) {
		o.Follow = func() bool { return f.runs(r.Context(), c) }
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &flushed{w: w, to: http.NewResponseController(w), left: o.limit}
	err = logs.Read(r.Context(), c.LogFile(), o.Options, out)
	switch {
	case errors.Is(err, errLimit):
	case errors.Is(err, os.ErrNotExist) && !out.begun:
		http.Error(w, "container "+c.Name+" has no log: it was not started, or its log is gone", http.StatusBadRequest)
	case err != nil && r.Context().Err() == nil:
		f.conf.Log.Warn("a log was not read to its end", "container", c.ID, "err", err)
	}
}

// runs tells that more may come from a container. As long as the runtime does
// not answer, it may.
func (n *Node) runs(ctx context.Context, c *podruntime.Container) bool {
	alive, err := n.conf.Runtime.Runs(ctx, c.ID)
	return err != nil || alive
}

// errLimit ends a log that has as many bytes as were wanted.
var errLimit = errors.New("as much as was asked for")

// flushed sends each line at once.
type flushed struct {
	w     io.Writer
	to    *http.ResponseController
	left  *int64 // bytes that are still wanted; nil is any number
	begun bool
}

func (f *flushed) Write(p []byte) (int, error) {
	f.begun = true
	if f.left != nil {
		p = p[:min(int64(len(p)), *f.left)]
		*f.left -= int64(len(p))
	}
	out, err := f.w.Write(p)
	if err == nil {
		err = f.to.Flush()
	}
	if err == nil && f.left != nil && *f.left == 0 {
		err = errLimit
	}
	return out, err
}

// wanted is what a request wants of a log.
type wanted struct {
	logs.Options
	limit *int64 // bytes; nil is all
}

// logOptions reads kubelet's parameters.
func logOptions(q url.Values) (wanted, error) {
	o := wanted{Options: logs.Options{Tail: -1, Timestamps: truth(q.Get("timestamps"))}}
	var err error
	if s := q.Get("tailLines"); s != "" {
		if o.Tail, err = strconv.Atoi(s); err != nil || o.Tail < 0 {
			return o, errors.New("tailLines is no number of lines")
		}
	}
	if s := q.Get("limitBytes"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 {
			return o, errors.New("limitBytes is no number of bytes")
		}
		o.limit = &n
	}
	if s := q.Get("stream"); s != "" && s != v1.LogStreamAll {
		return o, errors.New("stream " + s + ": the streams of a log are not told apart here")
	}
	o.Since, err = since(q)
	return o, err
}

// since is the time from which on a log is wanted; zero is all of it.
func since(q url.Values) (time.Time, error) {
	if s := q.Get("sinceSeconds"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 32)
		if err != nil || seconds < 0 {
			return time.Time{}, errors.New("sinceSeconds is no number of seconds")
		}
		return time.Now().Add(-time.Duration(seconds) * time.Second), nil
	}
	s := q.Get("sinceTime")
	if s == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return at, errors.New("sinceTime is no time of RFC 3339")
	}
	return at, nil
}

// truth reads a parameter as kubelet and its clients write them.
func truth(s string) bool { return s == "1" || s == "true" }

func (f front) serveExec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	_, c := f.containerOf(w, r, false)
	if c == nil {
		return
	}
	tty := truth(q.Get("tty"))
	at, err := f.conf.Runtime.Stream(r.Context(), &cri.ExecRequest{
		ContainerId: c.ID, Cmd: q["command"], Tty: tty,
		Stdin: truth(q.Get("input")), Stdout: truth(q.Get("output")), Stderr: truth(q.Get("error")) && !tty,
	})
	f.handOver(w, r, at, err)
}

// serveAttach hands over a container's own streams. Whether they are a terminal
// was decided when it was made.
func (f front) serveAttach(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	spec, c := f.containerOf(w, r, false)
	if c == nil {
		return
	}
	at, err := f.conf.Runtime.Attach(r.Context(), &cri.AttachRequest{
		ContainerId: c.ID, Tty: spec.TTY,
		Stdin: truth(q.Get("input")), Stdout: truth(q.Get("output")), Stderr: truth(q.Get("error")) && !spec.TTY,
	})
	f.handOver(w, r, at, err)
}

// servePortForward hands over connections into a pod. SPDY names the ports in
// its streams, WebSocket in the request.
func (f front) servePortForward(w http.ResponseWriter, r *http.Request) {
	pod, st := f.podOf(w, r)
	if pod == nil {
		return
	}
	if len(st.Sandboxes) == 0 || !st.Sandboxes[0].Ready {
		http.Error(w, "pod "+pod.Name+" does not run", http.StatusBadRequest)
		return
	}
	var ports []int32
	for _, s := range strings.Split(strings.Join(r.URL.Query()["port"], ","), ",") {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil && s != "" {
			http.Error(w, "port "+strconv.Quote(s)+" is none", http.StatusBadRequest)
			return
		}
		if n > 0 {
			ports = append(ports, int32(n))
		}
	}
	at, err := f.conf.Runtime.PortForward(r.Context(), &cri.PortForwardRequest{PodSandboxId: st.Sandboxes[0].ID, Port: ports})
	f.handOver(w, r, at, err)
}

// handOver hands the connection to the runtime's own server, which has a URL for
// this request alone.
func (n *Node) handOver(w http.ResponseWriter, r *http.Request, at string, err error) {
	var target *url.URL
	if err == nil {
		target, err = url.Parse(at)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	proxy := httputil.ReverseProxy{
		// One connection for one request, and by no proxy of the environment's.
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, target.Host
			p.Out.Header.Del("Authorization") // was for us, not for the runtime
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the runtime's streaming server: "+err.Error(), http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(n.conf.Log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}
