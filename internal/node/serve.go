package node

import (
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Handler serves, for reading alone:
//
//	GET /pods    a v1.PodList of all pods with their status, as kubelet's
//	GET /livez   200 once the runtime has answered
func (n *Node) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /pods", n.servePods)
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
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		n.conf.Log.Debug("a client went before it had the pods", "err", err)
	}
}
