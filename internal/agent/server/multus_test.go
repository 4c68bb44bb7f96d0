package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/engine"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
)

// TestExportOfSomeContainers: those that the request names, all without one.
func TestExportOfSomeContainers(t *testing.T) {
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, j.Begin(t.Context(), core.Record{Key: core.Key{Container: id, IfName: "eth0"}, Phase: core.Added, FormerFiles: []string{"/x/" + id}}))
	}
	s := newServer(t)
	s.Engine, s.View.Journal = &engine.Engine{}, j
	for asked, want := range map[string][]string{`[]`: {"a", "b", "c"}, `["c","a","z"]`: {"a", "c"}} {
		w := httptest.NewRecorder()
		body := `{"config":{"cniVersion":"1.0.0","name":"n","type":"multus","clusterNetwork":"x"},"containers":` + asked + `}`
		s.multus(s.export)(w, httptest.NewRequest(http.MethodPost, agent.PathMultusExport, strings.NewReader(body)))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		var got agent.ExportResult
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		var ids []string
		for _, e := range got.Items {
			ids = append(ids, e.Container)
		}
		require.Equal(t, want, ids)
	}
}
