package server

import (
	"net/http"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/declarations"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/catalog"
)

// serveSettings tells what is declared of a pod, be it there or not.
func (s *Server) serveSettings(w http.ResponseWriter, r *http.Request) {
	pod := core.Pod{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	_, err := s.View.Source.Pod(r.Context(), pod)
	x, refusal := s.Engine.Explain(r.Context(), pod)
	writeJSON(w, http.StatusOK, catalog.Settings(pod, err == nil, x, refusal))
}

// servePodNetworks lists PodNetworks with this node's pods.
func (s *Server) servePodNetworks(w http.ResponseWriter, r *http.Request) {
	index, err := s.View.Declared.Declared(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	namespace := r.URL.Query().Get(agent.QueryNamespace)
	pods := s.declaredPods(r, namespace)
	out := agent.PodNetworkList{Items: []agent.PodNetwork{}}
	for _, o := range index.PodNetworks() {
		if namespace != "" && o.Namespace != namespace {
			continue
		}
		item := catalog.PodNetwork(o)
		item.Pods = append(item.Pods, pods["PodNetwork "+o.Namespace+"/"+o.Name]...)
		out.Items = append(out.Items, item)
	}
	writeJSON(w, http.StatusOK, out)
}

// declaredPods are the pods that have networks, by the source that speaks of them.
func (s *Server) declaredPods(r *http.Request, namespace string) map[string][]agent.PodNetworkPod {
	has := map[core.Pod][]core.Net{}
	for _, h := range s.View.Journal.Heads() {
		if h.Phase == core.Added && !h.Orphan && !h.Pod.IsZero() && (namespace == "" || h.Pod.Namespace == namespace) {
			pod := core.Pod{Namespace: h.Pod.Namespace, Name: h.Pod.Name}
			has[pod] = append(has[pod], h.Statuses...)
		}
	}
	out := map[string][]agent.PodNetworkPod{}
	for pod, nets := range has {
		x, err := s.Engine.Explain(r.Context(), pod)
		for source, p := range declarations.Judge(pod, nets, nil, x, err) {
			out[source] = append(out[source], agent.PodNetworkPod{Name: p.Name, Node: s.View.Base.Node, Reason: p.Reason, Message: p.Message})
		}
	}
	return out
}
