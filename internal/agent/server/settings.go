package server

import (
	"net/http"

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
